"""Regions are priced by what their kernels do: the same blocks, workspace and combinations of states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.cost.kernel_time import kernel_seconds
from einturnip.cost.machine import Machine
from einturnip.cost.region_work import combiner_work, counted_blocks, region_work
from einturnip.ir.einsum import Box
from einturnip.kernels import select
from einturnip.kernels.expr.fold import partial_levels
from einturnip.kernels.fused import block_layout, partial_states, region_spec
from einturnip.kernels.fused.block_iterator import extents_of
from einturnip.kernels.fused.partial_states import CombineStates
from einturnip.kernels.fused.program import BlockContext
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.command_list import CommandListExecutor
from einturnip.kernels.protocol import Mode
from tests.kernels.regions import CASES, Array, Made, attention


class Counts:
    """The blocks and combinations of states that a kernel computes step by step."""

    def __init__(self) -> None:
        self.blocks: Counter[Any] = Counter()
        self.combinations: Counter[tuple[int, ...]] = Counter()

    def of(self, kernel: RegionKernel, outs: tuple[Array, ...], operands: tuple[Array, ...]) -> None:
        block, combine, find = kernel._block, kernel.combine_states, code_cache.find

        def counted(context: BlockContext, box: Box, tile: Box) -> int:
            self.blocks[extents_of(box), kernel.spec.mask.evaluate(box)] += 1
            return block(context, box, tile)

        def combined(context: BlockContext, box: Box, tile: Box, outs: tuple[Array, ...], levels: CombineStates) -> int:
            self.combinations[extents_of(box)] += 1
            return combine(context, box, tile, outs, levels)

        kernel.spec.scratch_nbytes = kernel.workspace_nbytes = 1 << 22  # so that no block is halved
        executor = CommandListExecutor()
        with (
            mock.patch.object(kernel, "_block", counted),
            mock.patch.object(kernel, "combine_states", combined),
            mock.patch.object(code_cache, "find", lambda code: None if code == executor else find(code)),
        ):
            kernel(outs, operands, (0,) * len(kernel.spec.extents), True, np.zeros(1 << 23, np.uint8))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of a few points, and few additions to a state, so that small tiles have many of both."""
    monkeypatch.setattr(partial_states, "ADDITIONS_PER_STATE", 2)
    monkeypatch.setattr(block_layout, "MAX_VALUE_NBYTES", 1 << 9)
    monkeypatch.setattr(region_spec, "MAX_VALUE_NBYTES", 1 << 9)
    monkeypatch.setattr(region_spec, "MAX_PACKED_VALUE_NBYTES", 1 << 8)
    monkeypatch.setattr(block_layout, "MAX_STREAMED_POINTS", 8)
    select.priced_region.cache_clear()
    yield
    select.priced_region.cache_clear()


def case(number: int) -> Made:
    rng = np.random.default_rng(number)
    masks = ("", "causal", "window")
    return CASES[number](rng) if number < len(CASES) else attention(rng, 1, 2, 37, 53, 8, 6, masks[number - len(CASES)])


NUMBERS = range(len(CASES) + 3)


@pytest.mark.usefixtures("small_blocks", "own_cache")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("mode", ["full", "accumulate"])
@pytest.mark.parametrize("number", NUMBERS)
def test_priced_blocks_are_those_that_run(number: int, mode: Mode, native: bool) -> None:
    made = case(number)
    region, extents = made.region, made.region.bounds
    native = native and bool(select.machine_code(region, mode))  # as it is priced
    if native and not code_cache.available():
        pytest.skip("no machine code on this kind of machine")
    if native:
        assert select.prepare_kernels([(region, mode)])
    else:
        code_cache.forget()
    kernel = select.compile_tile(region, extents, mode)
    assert isinstance(kernel, RegionKernel) and kernel.spec.native == native
    priced = select.priced_region(region, extents, mode, native)
    assert (priced.blocks, priced.levels, priced.layout) == (kernel.spec.blocks, kernel.spec.levels, kernel.spec.layout)
    assert priced.workspace_nbytes == kernel.workspace_nbytes == select.workspace_nbytes(region, extents, mode)
    outs = (
        (np.empty(region.shape, region.dtype.numpy),)
        if mode == "full"
        else tuple(np.empty(shape, dtype.numpy) for shape, dtype in region.components(extents))
    )
    counts = Counts()
    counts.of(kernel, outs, made.operands)
    blocks, combinations = counted_blocks(priced, (0,) * len(extents))
    assert blocks == counts.blocks
    assert combinations == counts.combinations


@pytest.mark.usefixtures("small_blocks")
def test_only_the_call_and_combinations_of_a_command_list_cost_calls_of_python() -> None:
    recorded = 0
    for number in NUMBERS:
        region = case(number).region
        spec = select.priced_region(region, region.bounds, "full", native=True)
        blocks, combinations = counted_blocks(spec, None)
        if spec.records and sum(blocks.values()) > 1:
            recorded += 1
            combining = sum(n * combiner_work(spec.combiner(x)).turns["call"] for x, n in combinations.items())
            assert region_work(region, region.bounds, "full", native=True).turns["call"] == 1 + combining
    assert recorded > 2


@given(st.integers(1, 4000), st.integers(1, 70), st.integers(0, 1), st.integers(0, 3))
def test_counted_combinations_are_those_of_the_steps(blocks: int, group: int, minimum: int, more: int) -> None:
    partial = max(minimum, partial_levels(blocks, group)) + more
    levels = partial_states.StateLevels(partial, group, minimum)
    box: Box = ((0, 1),)
    steps = levels.steps([(box, ())] * blocks)
    assert sum(isinstance(step, CombineStates) for step in steps) == levels.combinations(blocks)


@pytest.mark.parametrize("number", NUMBERS)
def test_combining_has_a_price_of_its_own(number: int) -> None:
    """It grows with the state, and a state with running extrema costs more than its sums alone."""
    region = case(number).region
    machine = Machine()
    small = tuple([n if p >= region.n_out else 1 for p, n in enumerate(region.bounds)])
    large = tuple([n if p >= region.n_out else 64 * n for p, n in enumerate(region.bounds)])
    assert kernel_seconds(region, small, machine, "combine") < kernel_seconds(region, large, machine, "combine")
    if region.rescales:
        points = sum(np.prod(shape) for shape, _ in region.components(large))
        sums = points * machine.point_seconds("add.float32")
        assert kernel_seconds(region, large, machine, "combine") > 2 * sums
