"""Faults put into generated CUDA sources: the checked emulation finds each, and nothing in the sources as they are."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from einturnip.core.package_data import folder
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32, I64
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.region import Region
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels.cuda import region_parts
from einturnip.kernels.cuda.generate import generate
from einturnip.kernels.cuda.types import ANY, TileLayout
from tests.reference.einsum import evaluate_einsum

from .. import regions
from .drawn import close
from .emulation import Emulator, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
BARRIER = r"__syncthreads\(\);\n"


@dataclass(frozen=True)
class Call:
    """A kernel's call and its result."""

    space: Einsum | Region
    operands: tuple[np.ndarray, ...]
    expected: np.ndarray
    layout: TileLayout = ANY


@dataclass(frozen=True)
class Fault:
    """The occurrence number ``at`` of a pattern, replaced; ``found``: what the checks say."""

    of: str
    what: str
    pattern: str
    at: int
    by: str
    found: str

    def __str__(self) -> str:
        return f"{self.of}: {self.what}"


FAULTS = [
    Fault("max-plus", "no barrier between filling the panels and reading them", BARRIER, 1, "", "a race"),
    Fault("max-plus", "one point too many along the summed axis", r"k < depth", 0, "k <= depth", "never written"),
    Fault("max-plus", "one element too many of a panel's row", r"n < 4; n", 0, "n <= 4; n", "beyond its array"),
    Fault("max-plus", "one row too many of the offsets", r"n < 64; n", 0, "n <= 64; n", "beyond its array"),
    Fault("max-plus", "the result's edge is not respected", r"row < M && column < N", 0, "row < M", "a race|outside"),
    Fault("max-plus", "the flags begin without a value", r"if \(threadIdx.x == 0\) seen = 0;", 0, "", "never written"),
    Fault("sum of rows", "no barrier before the threads' states are combined", BARRIER, -3, "", "never written|a race"),
    Fault("sum of rows", "no barrier between two steps of the tree", BARRIER, -2, "", "a race"),
    Fault("transpose", "no barrier between filling the tile and reading it", BARRIER, 0, "", "never written|a race"),
    Fault("transpose", "one row too many of the tile", r"k < 8", 0, "k <= 8", "beyond its array"),
    Fault("scatter", "no barrier before the counts are added", BARRIER, -1, "", "never written|a race"),
    Fault("scatter", "one row too many is moved", r"i < n && i < \(th", -1, "i <= n && i < (th", "outside|past|a race"),
    Fault("attention", "no barrier before the table of columns is read", BARRIER, 2, "", "never written|a race"),
    Fault("attention", "no barrier between filling the panels and reading them", BARRIER, 4, "", "a race"),
    Fault("attention", "no barrier before scores are read", BARRIER, 5, "", "never written|a race"),
    Fault("attention", "no barrier before weights are read", BARRIER, 7, "", "never written|a race"),
    Fault("attention", "one column too many", r"c < wide", 0, "c <= wide", "never written|past|a race"),
    Fault("attention", "one score too many of a row", r"q < N", 0, "q <= N", "never written|past|a race"),
    Fault("nearest", "no barrier before the next columns", BARRIER, 7, "", "a race"),
    Fault("causal", "no barrier before the conditions are collected", BARRIER, 3, "", "a race"),
    Fault("causal", "conditions of the columns before are kept", r"alive\[!turn\] = 0", 0, "0", "never written|a race"),
    Fault("attention", "results are written one element further", r"out\[0\], l0", 0, "out[0], 4 + l0", "outside|past"),
]  # fmt: skip


def _product() -> Call:
    """A matrix product over (max, +), with sizes that the blocks do not divide."""
    join = ScalarCall("add", (OperandRef(0, F32), OperandRef(1, F32)), F32)
    bounds, accesses = (70, 40, 37), ((0, 2), (2, 1))
    return _einsum(Einsum(tuple("ijk"), bounds, 2, accesses, (F32, F32), join, aggregation("max", F32)))


def _fold() -> Call:
    return _einsum(Einsum(tuple("ij"), (3, 700), 1, ((0, 1),), (F32,), OperandRef(0, F32), aggregation("sum", F32)))


def _einsum(einsum: Einsum) -> Call:
    rng = np.random.default_rng(1)
    operands = [rng.normal(size=einsum.operand_shape(k)).astype(np.float32) for k in range(len(einsum.accesses))]
    operands[0][0, 0] = np.nan  # threads report it through shared memory
    return Call(einsum, tuple(operands), evaluate_einsum(einsum, operands)[0])


def _transpose() -> Call:
    """A sum of a matrix and a transposed one, with sizes that tiles do not divide."""
    join = ScalarCall("add", (OperandRef(0, F32), OperandRef(1, F32)), F32)
    call = _einsum(Einsum(tuple("ij"), (37, 50), 2, ((0, 1), (1, 0)), (F32, F32), join, None))
    return replace(call, layout=TileLayout(transposed=frozenset({1}), across=0))


def _scatter() -> Call:
    """Sums of rows by key."""
    key = Key(0, OperandRef(1, I64))
    einsum = Einsum(
        tuple("udi"), (300, 3, 5000), 2, ((2, 1), (2,)), (F32, I64), OperandRef(0, F32),
        aggregation("sum", F32, keyed=True), ((5000, 3), (5000,)), (key,),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    operands = rng.integers(-9, 9, (5000, 3)).astype(np.float32), rng.integers(0, 300, 5000) ** 2 // 300
    return Call(einsum, operands, evaluate_einsum(einsum, operands)[0])


def _region(case: int) -> Call:
    made = regions.CASES[case](np.random.default_rng(0))
    return Call(made.region, tuple(made.operands), made.expected)


CALLS = {
    "max-plus": _product,
    "sum of rows": _fold,
    "transpose": _transpose,
    "scatter": _scatter,
    "attention": lambda: _region(0),
    "causal": lambda: _region(1),
    "nearest": lambda: _region(4),
}


@lru_cache
def call_of(name: str) -> Call:
    return CALLS[name]()


def inlined(source: str) -> str:
    """A source with its headers' text, each once."""
    texts, seen = {path.name: path.read_text() for path in folder("kernels").glob("*.cuh")}, set[str]()

    def include(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return re.sub(pattern, include, texts[match[1]].replace("#pragma once", ""))

    pattern = r'#include "(\w+\.cuh)"'
    return re.sub(pattern, include, source)


def run(name: str, fault: Fault | None, scratch: Path) -> None:
    """A call in both orders of threads, in small blocks where the kernel permits."""
    call = call_of(name)
    with mock.patch.object(region_parts, "SHAPES", ((2, 3),)):
        kernel = generate(call.space, "full", call.layout)
        source = inlined(kernel.source)
        if fault is not None:
            begin = source.index('extern "C"') if fault.at >= 0 else 0  # else counted back in all of the text
            places = [m for m in re.finditer(fault.pattern, source) if m.start() >= begin]
            place = places[fault.at]
            source = source[: place.start()] + fault.by + source[place.end() :]
        kernel = replace(kernel, source=source)
        emulator = Emulator([kernel], scratch, "checked")
        for falling in (False, True):
            out = np.full(call.space.shape, 7).astype(call.space.dtype.numpy)
            emulator.call(
                kernel, call.space.bounds, [out], call.operands, [0] * len(call.space.bounds), falling=falling
            )
            close(out, call.expected.astype(out.dtype), 2e-5)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_found_in_the_sources_as_they_are(name: str, tmp_path: Path) -> None:
    run(name, None, tmp_path)


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=[pytest.mark.slow] * bool(n % 4), id=str(f)) for n, f in enumerate(FAULTS)]
)
def test_a_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=fault.found):
        run(fault.of, fault, tmp_path)
