"""Steps of blocked kernels: assembled once for tiles of many sizes, and the same as those assembled for one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels import select
from einturnip.kernels.expr.assemble import PrimitiveStep
from einturnip.kernels.numpy.blocked import BlockedKernel
from einturnip.kernels.protocol import Mode
from tests.drawn import examples
from tests.kernels.test_kernels import einsums

SIZES = (1, 2, 5, 33, 64, 65, 129, 500, 1025, 4097, 70000)
MODES: tuple[Mode, ...] = ("full", "accumulate", "finalize", "combine")


def comparable(step: PrimitiveStep) -> tuple[Any, ...]:
    run = step.operation
    operation = (run.func, run.args, tuple(run.keywords.items())) if isinstance(run, partial) else run
    return operation, step.arguments, step.out, step.name


def contents(kernel: BlockedKernel) -> tuple[Any, ...]:
    steps = kernel.steps
    nested = [*steps.sections, *(section for pair in steps.carries for section in pair)]
    registers = [
        (*(getattr(r, f) for f in ("kind", "dtype", "labels", "level", "index")), str(r.array)) for r in steps.registers
    ]
    return kernel.space, registers, [list(map(comparable, s)) for s in nested], steps.lives, kernel.offsets


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_shared_steps_are_those_of_a_kernel_made_alone(data: st.DataObject) -> None:
    drawn = data.draw(einsums())
    bounds = tuple(data.draw(st.sampled_from(SIZES)) for _ in drawn.bounds)
    einsum = replace(drawn, bounds=bounds)
    mode = "full" if einsum.aggregation is None else data.draw(st.sampled_from(MODES))
    for _ in range(data.draw(st.integers(2, 5))):
        extents = tuple(data.draw(st.sampled_from([n for n in SIZES if n <= b])) for b in bounds)
        kernel = select.compile_tile(einsum, extents, mode, native=False)
        if isinstance(kernel, BlockedKernel):
            alone = replace(kernel.source, _shared={})
            nbytes = data.draw(st.sampled_from((0, 4096, 1 << 16)))
            assert contents(kernel) == contents(alone.kernel(kernel.extents))
            assert contents(kernel.within(nbytes)) == contents(alone.within(kernel.extents, nbytes))


@pytest.mark.parametrize("op", [None, "sum", "max", "logsumexp", "mean"])
def test_many_tile_sizes_share_few_steps(op: str | None) -> None:
    join = ScalarCall("exp", (ScalarCall("mul", (OperandRef(0, F32), OperandRef(1, F32)), F32),), F32)
    bounds = (4096, 4096)
    einsum = Einsum(
        ("i", "j"), bounds, 2 if op is None else 1, ((0, 1), (1,)), (F32, F32), join, op and aggregation(op, F32)
    )
    kernels = [
        select.compile_tile(einsum, (n, m), "full", native=False)
        for n in range(1, 4096, 301)
        for m in range(1, 4096, 301)
    ]
    sources = {kernel.source for kernel in kernels if isinstance(kernel, BlockedKernel)}
    assert len(sources) == 1 and len(kernels) == 196
    assert len({id(kernel.steps) for kernel in kernels if isinstance(kernel, BlockedKernel)}) <= 24
