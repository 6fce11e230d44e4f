"""Guarded reads in machine code against the reference: drawn tiles, sizes 1 to many, dtypes, aggregations, layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.llvm.kernel_spec import kernel_spec
from einturnip.lang import compile_text
from tests.drawn import examples
from tests.kernels.test_short_vectors import DTYPES, laid_out, machine_code, modes
from tests.reference.einsum import evaluate_einsum

pytestmark = pytest.mark.machine_code

# Operands by the labels of their axes, the output's labels, and what is computed.
EQUATIONS = [
    ("ij", "ij", "X[i,j] + 3 * (X[i-1 ? 0, j] + X[i+1 ? 0, j] + X[i, j-1 ? 0] + X[i, j+1 ? 0])"),
    ("ij", "ij", "7 * X[i-1 ? 5, j-2 ? 5] - X[i+2 ? 1, j]"),
    ("ij j", "ij", "X[i-1 ? Y[j], j] * 2 + X[i, 3-j ? Y[j]]"),
    ("ij ij", "ji", "X[i-1 ? 4, j] + 2 * Y[i,j]"),
    ("ij", "i", "sum[j] X[i-1 ? 2, j] * X[i, j+1 ? 3]"),
    ("ij", "j", "sum[i] (X[i, j-1 ? 1] + X[i-2 ? 0, j])"),
    ("ij", "i", "max[j] (X[i-1 ? 0, j] - X[i, j+1 ? 2])"),
    ("ij", "i", "argmax[j] X[i, j-1 ? 9]"),
    ("ij", "ij", "where(i < j, X[i, 2*j-3 ? 1], 1 - X[i-1 ? 6, j])"),
    ("i", "i", "X[i-1 ? 0] + X[i+1 ? 0]"),
]
SIZES: list[dict[str, int]] = [
    {"i": 23, "j": 45},
    {"i": 6, "j": 3},
    {"i": 300, "j": 5},
    {"i": 2, "j": 2},
    {"i": 9, "j": 270},
]


def einsum_of(read: str, out: str, right: str, dtype: str, sizes: dict[str, int]) -> Einsum:
    """The einsum of an equation that has its guarded reads; each of them is an operand of its own."""
    axes = [",".join(labels) for labels in read.split()]
    declared = "".join(f"input {x} : {dtype}[{a}]\n" for x, a in zip("XY", axes, strict=False))
    text = f"{declared}Z[{','.join(out)}] = {right}\noutput Z\n"
    shapes = {x: tuple(sizes[p] for p in labels) for x, labels in zip("XY", read.split(), strict=False)}
    nodes = rewrite(build(compile_text(text, "k.ein"), shapes, {})).nodes
    (einsum,) = [n.einsum for n in nodes if isinstance(n, EinsumNode)]
    assert isinstance(einsum, Einsum)
    return einsum


def cases() -> dict[tuple[int, int, str], Einsum]:
    """The einsums by equation, sizes and dtype."""
    found = {}
    for (e, equation), (s, sizes) in itertools.product(enumerate(EQUATIONS), enumerate(SIZES)):
        for dtype in ("f64",) if s else ("f32", ("f64", "f16", "i32")[e % 3]):
            found[e, s, dtype] = einsum_of(*equation, dtype, sizes)
    return found


CASES = cases()


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All kernels in one call of the compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        specs = [kernel_spec(einsum, mode) for einsum in CASES.values() for mode in modes(einsum)]
        code_cache.prepare([spec for spec in specs if spec is not None])
        yield


def run_tile(
    einsum: Einsum, operands: list[np.ndarray], box: list[tuple[int, int]], mode: select.Mode, layout: int
) -> tuple[np.ndarray, ...]:
    """Machine code over the points of a box; every operand is the part that they read, in memory of its own."""
    extents = tuple(b - a for a, b in box)
    kernel = machine_code(einsum, extents, mode)
    dtypes = einsum.state_dtypes if mode == "accumulate" else (einsum.dtype,)
    outs = tuple(laid_out(np.full(extents[: einsum.n_out], 3, d.numpy), layout) for d in dtypes)
    parts = [x[tuple(slice(*r) for r in einsum.operand_box(s, box))].copy() for s, x in enumerate(operands)]
    workspace = np.empty(max(1, kernel.workspace_nbytes), np.uint8)
    tiles = tuple(laid_out(part, layout) for part in parts)
    kernel(outs, tiles, tuple(a for a, _ in box), True, workspace)
    return outs


@given(st.data())
@settings(max_examples=examples(250), deadline=None)
def test_any_tile_as_the_reference(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(CASES)))
    einsum, dtype = CASES[key], key[2]
    box = []
    for n in einsum.bounds:
        begin = data.draw(st.sampled_from(sorted({0, n // 2, n - 1, data.draw(st.integers(0, n - 1))})))
        box.append((begin, data.draw(st.sampled_from(sorted({n, begin + 1, data.draw(st.integers(begin + 1, n))})))))
    mode = data.draw(st.sampled_from(modes(einsum)))
    if mode == "full":
        box[einsum.n_out :] = [(0, n) for n in einsum.bounds[einsum.n_out :]]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    operands = [
        rng.integers(-5, 5, shape).astype(DTYPES[dtype])
        for shape in map(einsum.operand_shape, range(len(einsum.dtypes)))
    ]
    layout = data.draw(st.sampled_from((0, 0, 1, 2)))
    made = run_tile(einsum, operands, box, mode, layout)
    parts = tuple(x[tuple(slice(*r) for r in einsum.operand_box(s, box))] for s, x in enumerate(operands))
    origins, extents = tuple(a for a, _ in box), tuple(b - a for a, b in box)
    right = evaluate_einsum(einsum, parts, origins, extents, "state" if mode == "accumulate" else "result")
    for a, b in zip(made, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if dtype != "f16" else 1e-3)


@pytest.mark.parametrize("number", [0, 1, 2, 8])
@pytest.mark.parametrize("size", [0, 4])
def test_the_bits_of_a_point_do_not_depend_on_its_tile(number: int, size: int) -> None:
    einsum = CASES[number, size, "f64"] if size else CASES[number, size, "f32"]
    rng = np.random.default_rng(number)
    shapes = map(einsum.operand_shape, range(len(einsum.dtypes)))
    operands = [rng.standard_normal(shape).astype(einsum.dtype.numpy) for shape in shapes]
    n, m = einsum.bounds
    (whole,) = run_tile(einsum, operands, [(0, n), (0, m)], "full", 0)
    for rows, columns in itertools.product([(0, n), (1, n - 1), (2, 3)], [(0, m), (1, m), (3, m - 9), (17, 18)]):
        (part,) = run_tile(einsum, operands, [rows, columns], "full", 0)
        assert part.tobytes() == whole[slice(*rows), slice(*columns)].tobytes()


def test_a_guarded_read_raises_no_flag_for_memory_that_it_does_not_read() -> None:
    einsum = einsum_of("i", "i", "1 / X[i-1 ? 4]", "f64", {"i": 21})
    assert select.prepare_kernels([(einsum, "full")]) == 1
    kernel = select.compile_kernel(einsum, (20,), "full")
    assert isinstance(kernel, MachineCodeKernel)
    for origin, zeros in ((0, [20]), (1, [20])):
        x, out = np.full(21, 2.0), np.empty(20)
        x[zeros] = 0
        box = einsum.operand_box(0, [(origin, origin + 20)])
        part = x[tuple(slice(*r) for r in box)]
        assert kernel((out,), (part,), (origin,), True, np.empty(kernel.workspace_nbytes, np.uint8)) == 0
        assert out.tolist() == [0.25 if origin == i == 0 else 0.5 for i in range(20)]


def test_a_clamped_read_without_a_guard_has_no_machine_code() -> None:
    guarded = CASES[9, 0, "f32"]
    assert kernel_spec(guarded, "full") is not None
    plain = einsum_of("i", "i", "X[min(max(i-1, 0), 4)]", "f32", {"i": 23})
    assert kernel_spec(plain, "full") is None
