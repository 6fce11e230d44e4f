"""Results that bypass the caches: the same numbers for every layout and row length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache, kernel_spec, memory, row_spec
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.select import compile_tile
from einturnip.lang import compile_text
from tests.kernels.test_rows import PROGRAMS, Array, native, ran, region_of

pytestmark = pytest.mark.machine_code

HEAD = "input X : f32[n, m]\ninput r : f32[n]\n"


@pytest.fixture(autouse=True)
def _small_results(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kilobyte is large."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    for module in (kernel_spec, memory, row_spec):
        monkeypatch.setattr(module, "STREAMED_NBYTES", 1024)
    for cached in (kernel_spec._kernel_spec, row_spec.fuse_rows):
        cached.cache_clear()
    yield
    for cached in (kernel_spec._kernel_spec, row_spec.fuse_rows):
        cached.cache_clear()
    code_cache.forget()
    select.forget()


def lying(shape: tuple[int, ...], offset: int, spare: int) -> Array:
    """An array that begins ``offset`` elements after a whole line, with a number of unused elements after each row."""
    wide = shape[-1] + spare
    memory_of = np.full(shape[0] * wide + 32, np.nan, np.float32)
    begin = (-memory_of.__array_interface__["data"][0] % 64) // 4 + offset
    rows = memory_of[begin : begin + shape[0] * wide]
    return rows.reshape(shape[0], wide)[:, : shape[-1]]


@pytest.mark.parametrize("equation", ["Z[n,m] = X[n,m] * 2 + r[n]", "Z[m,n] = X[n,m]"])
def test_maps(equation: str) -> None:
    head = HEAD if "r[n]" in equation else HEAD.splitlines()[0] + "\n"
    text = f"{head}{equation}\noutput Z\n"
    shapes = {"X": (45, 67), "r": (45,)} if "r[n]" in equation else {"X": (45, 67)}
    graph = build(compile_text(text, "k.ein"), shapes, {})
    (node,) = [n for n in graph.nodes if isinstance(n, EinsumNode)]
    assert isinstance(node.einsum, Einsum)
    assert select.prepare_kernels([(node.einsum, "full")]) == 1
    made = code_cache.llvm_ir(select.kernel_spec(node.einsum, "full"))  # type: ignore[arg-type]
    assert "!nontemporal" in made and "sfence" in made
    kernel = compile_tile(node.einsum, node.einsum.bounds, "full")
    assert isinstance(kernel, MachineCodeKernel)
    rng = np.random.default_rng(0)
    x, r = rng.integers(-9, 9, (45, 67)).astype(np.float32), rng.integers(-9, 9, 45).astype(np.float32)
    operands = (x, r)[: len(node.einsum.accesses)]
    expected = x * 2 + r[:, None] if "r[n]" in equation else x.T
    for offset, spare in ((0, -expected.shape[1] % 16), (0, 0), (3, 16)):
        out = lying(expected.shape, offset, spare)
        kernel((out,), operands, (0, 0), True, np.empty(kernel.workspace_nbytes + 1, np.uint8))
        np.testing.assert_array_equal(out, expected)
        if spare:
            assert out.base is not None and np.isnan(np.asarray(out.base)).sum() >= spare


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
def test_rows(name: str) -> None:
    region, operands = region_of(PROGRAMS[name], 21, 83)
    kernel = native(region)
    assert "!nontemporal" in code_cache.llvm_ir(kernel.run.row_spec)
    expected, _ = ran(region, operands, kernel.fallback)
    for offset, spare in ((0, 13), (0, 0), (5, 3)):
        out, _ = ran(region, operands, kernel, lying((21, 83), offset, spare))
        np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-6)
