"""Rounding errors of long sums: at most a few times log2(n) units in the last place, whichever kernel adds them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import einturnip as et
from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.block_sizes import BLOCK, block_sizes
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.select import compile_kernel, compile_tile, prepare_kernels
from einturnip.lang import compile_text

from .long_sums import EQUATIONS, LABELS, Sum, drawn, ran

COUNT = int(os.environ.get("EINTURNIP_TEST_SUMS", 10_000))
ARENAS = (None, "4MiB", "256KiB")
LONG = {"X": (1_500_000,), "A": (200_000, 9), "T": (400, 30, 100)}
WIDE = {"X": (70_001,), "A": (5_000, 300), "T": (3, 40_000, 8)}


@pytest.fixture
def own_kernels(own_cache: None) -> Iterator[None]:
    """No machine code to begin with."""
    code_cache.forget()
    select.forget()
    yield


def needs_machine_code() -> None:
    """Skip where none can be made."""
    if not code_cache.available():
        pytest.skip("no machine code on this kind of machine")


@pytest.mark.parametrize("shapes", [LONG, WIDE], ids=["long", "wide"])
def test_equal_terms_by_numpy(shapes: dict[str, tuple[int, ...]]) -> None:
    for one in equal_terms(shapes):
        einsum = one.einsum
        kernel = compile_tile(einsum, einsum.bounds, "full", native=False)
        assert one.ulps(ran(kernel, einsum, one.operand)) <= 1, one.equation


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("shapes", [LONG, WIDE], ids=["long", "wide"])
def test_equal_terms_by_machine_code(shapes: dict[str, tuple[int, ...]]) -> None:
    needs_machine_code()
    sums = [*equal_terms(shapes)]
    prepare_kernels([(one.einsum, "full") for one in sums])
    for one in sums:
        kernel = compile_kernel(one.einsum, one.einsum.bounds, "full")
        assert isinstance(kernel, MachineCodeKernel)
        assert one.ulps(ran(kernel, one.einsum, one.operand)) <= 1, one.equation


def equal_terms(shapes: dict[str, tuple[int, ...]]) -> Iterator[Sum]:
    for equation in EQUATIONS:
        name = next(x for x in LABELS if f"{x}[" in equation)
        yield Sum(equation, "f32", np.full(shapes[name], 0.1, np.float32))


@pytest.mark.parametrize("subscripts", ["i->", "i,i->"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("arena", ARENAS)
def test_einsum_of_equal_terms(subscripts: str, workers: int, arena: str | None) -> None:
    x = np.full(3_000_000, 0.1, np.float32)
    found = et.einsum(subscripts, *[x] * (1 + subscripts.count(",")), arena=arena, workers=workers)
    one = Sum("Z = sum[i] X[i]^2" if "," in subscripts else "Z = sum[i] X[i]", "f32", x)
    assert one.ulps(found) <= 1


@pytest.mark.usefixtures("own_kernels")
@pytest.mark.parametrize("terms", [1000, 4096, 20000])
def test_narrow_products_are_as_exact_as_numpys(terms: int) -> None:
    needs_machine_code()
    rng = np.random.default_rng(terms)
    left, right = (rng.random((n, terms)).astype(np.float32) for n in (64, 4))
    text = "input A : f32[i,k], B : f32[j,k]\nZ[i,j] = sum[k] A[i,k]*B[j,k]\noutput Z\n"
    graph = build(compile_text(text, "product.ein"), {"A": left.shape, "B": right.shape}, {})
    (einsum,) = [n.einsum for n in graph.nodes if isinstance(n, EinsumNode)]
    assert isinstance(einsum, Einsum)
    code = select.product_code(einsum, einsum.bounds, "full")
    assert code is not None and select.prepare_code([code]) == 1
    kernel = compile_kernel(einsum, einsum.bounds, "full")
    found = np.empty((64, 4), np.float32)
    kernel((found,), (left, right), (0, 0, 0), True, np.empty(max(1, kernel.workspace_nbytes), np.uint8))
    exact = left.astype(np.float64) @ right.astype(np.float64).T
    error, numpys = (np.abs(x - exact).max() / exact.max() for x in (found, left @ right.T))
    assert error <= 2 * max(numpys, 2 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("shape", [(16, 64), (100, 100)])
def test_products_in_many_small_tiles_are_as_exact_as_numpys(shape: tuple[int, int]) -> None:
    left, right = (np.full((100_000, n), 0.1, np.float32) for n in shape)
    exact = 100_000 * float(np.float32(0.1)) ** 2
    found = et.einsum("ki,kj->ij", left, right, workers=1, arena="256KiB")
    error, numpys = (np.abs(x.astype(np.float64) - exact).max() / exact for x in (found, left.T @ right))
    assert error <= 2 * max(numpys, 2 * np.finfo(np.float32).eps)


def test_blocks_are_short_at_every_level() -> None:
    """However long the labels are, no register adds more than a block's values in a row."""
    for steps in ([1], [64], [65], [10**9], [3, 10**6], [10**6, 3], [100, 100, 100], [1, 1, 5000], [40, 40]):
        added = 1  # since a register began anew
        for count, sizes in zip(reversed(steps), reversed(block_sizes(steps)), strict=True):
            lengths = [b // a for a, b in zip([1, *sizes], [*sizes, 1 << 62], strict=True)]
            left = count
            for n in lengths:
                taken = min(n, left)
                assert added * taken <= BLOCK
                added, left = (1, -(-left // n)) if left > n else (added * taken, 1)


@pytest.mark.usefixtures("own_kernels")
def test_some_drawn_sums() -> None:
    assert max(worst(60, 100_000).values()) <= 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("own_kernels")
def test_drawn_sums() -> None:
    """``EINTURNIP_TEST_SUMS`` sums, 10,000 by default."""
    found = worst(COUNT, 1_000_000)
    for kind, ratio in sorted(found.items()):
        print(f"largest error of {kind}: {ratio:.3f} of the bound")
    assert max(found.values()) <= 1


def worst(count: int, most: int) -> dict[str, float]:
    """By kind, the largest error over its bound of at least ``count`` drawn sums, each in several ways."""
    rng, found, results = np.random.default_rng(count), dict[str, float](), 0
    while results < count:
        sums = [*drawn(rng, min(50, count), most)]
        if code_cache.available():
            prepare_kernels([kernel for one in sums for kernel in one.code])
        for one in sums:
            for way, result in one.results(rng):
                ratio, results = one.ulps(result), results + 1
                assert ratio <= 1, (one.equation, one.dtype, way, ratio)
                found[one.kind] = max(found.get(one.kind, 0.0), ratio)
    return found
