"""Generated CUDA kernels against the reference, their text run on the host by ``emulate.h``."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, C64, F16, F32, F64, I8, I32, I64
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.region import Region
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels.cuda import region_parts, scatters
from einturnip.kernels.cuda.generate import generate, layout
from tests.reference.einsum import evaluate_einsum

from .. import regions
from .drawn import SOURCES, Drawn, close, drawn, parts
from .emulation import Emulator, Form, no_nvrtc, view, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def whole(cases: list[Drawn], scratch: Path) -> None:
    """Each einsum at once, with the layout that its operands allow, threads in both orders."""
    kernels, read = [], []
    for c in cases:
        out = np.empty(c.einsum.shape, c.einsum.dtype.numpy)
        read.append(parts(c.einsum, c.operands, tuple((0, n) for n in c.einsum.bounds)))
        chosen = layout(c.einsum, "full", c.einsum.bounds, [view(x) for x in read[-1]], [view(out)])
        kernels.append(generate(c.einsum, "full", chosen))
    emulator = Emulator(kernels, scratch)
    for c, kernel, operands in zip(cases, kernels, read, strict=True):
        expected = evaluate_einsum(c.einsum, c.operands)[0]
        for falling in (False, True):
            out = np.full(c.einsum.shape, 7).astype(c.einsum.dtype.numpy)
            emulator.call(kernel, c.einsum.bounds, [out], operands, [0] * len(c.einsum.bounds), falling=falling)
            close(out, expected)


def tiled(cases: list[Drawn], scratch: Path) -> None:
    """Each einsum tile by tile: accumulate two states, combine them, finalize."""
    cases = [c for c in cases if c.einsum.aggregation is not None]
    joins = [generate(c.einsum, "combine") for c in cases]
    pairs = [(generate(c.einsum, "accumulate"), generate(c.einsum, "finalize")) for c in cases]
    emulator = Emulator([k for of in (*pairs, joins) for k in of], scratch)
    for n, (c, (accumulate, finalize), join) in enumerate(zip(cases, pairs, joins, strict=True)):
        e, falling = c.einsum, bool(n % 2)
        out = np.full(e.shape, 7).astype(e.dtype.numpy)
        for kept, boxes in c.tiles:
            shape = tuple(b - a for a, b in kept)
            lower, upper = (
                tuple(np.full((*shape, 2), 9).astype(d.numpy)[..., 0] for d in e.state_dtypes) for _ in range(2)
            )
            half = len(boxes) // 2
            for i, box in enumerate(boxes):
                extents, origins = [b - a for a, b in box], [a for a, _ in box]
                state, first = (upper, i == 0) if i < half else (lower, i == half)
                emulator.call(accumulate, extents, state, parts(e, c.operands, box), origins, first, falling)
            extents, origins = [*shape, *e.bounds[e.n_out :]], [0] * len(e.bounds)
            emulator.call(join, extents, upper, lower, origins, half == 0, falling)
            part = out[(*(slice(*r) for r in kept), ...)]
            emulator.call(finalize, extents, [part], upper, origins, falling=falling)
        close(out, evaluate_einsum(e, c.operands)[0])


@pytest.mark.parametrize("source", SOURCES)
def test_drawn(source: str, tmp_path: Path) -> None:
    cases = drawn(source, 40)
    with mock.patch.multiple(scatters, _MIN_GROUPS=1, _MIN_ROWS=1):
        whole(cases, tmp_path)
        tiled(cases[:20], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_many_drawn(source: str, tmp_path: Path) -> None:
    cases = drawn(source, 400)
    for least in (1, 16):
        with mock.patch.multiple(scatters, _MIN_GROUPS=least, _MIN_ROWS=least):
            whole(cases, tmp_path)
            tiled(cases, tmp_path)


def test_regions(tmp_path: Path) -> None:
    """Whole and in tiles, in blocks of two rows and three columns and in large ones."""
    made = [case(np.random.default_rng(n)) for n, case in enumerate(regions.CASES)]
    kernels = [[generate(m.region, mode) for mode in ("full", "accumulate", "finalize", "combine")] for m in made]
    emulator = Emulator([k for ks in kernels for k in ks], tmp_path)
    for shapes in (((2, 3),), region_parts.SHAPES):
        for shared in (48 << 10, 0):
            with (
                mock.patch.object(region_parts, "SHAPES", shapes),
                mock.patch.object(region_parts, "SHARED_NBYTES", shared),
            ):
                for m, ks in zip(made, kernels, strict=True):
                    _region(emulator, m, ks)


@pytest.mark.parametrize("form", ["source", *(pytest.param(x, marks=pytest.mark.slow) for x in ("checked", "ptx"))])
def test_products_of_regions(form: Form, tmp_path: Path) -> None:
    """Sizes that the squares and panels of threads divide, or not; masks; other semirings."""
    if form == "ptx" and no_nvrtc():
        pytest.skip(no_nvrtc())
    rng = np.random.default_rng(0)
    made = [
        regions.attention(rng, 1, 2, 64, 128, 32, 64),
        regions.attention(rng, 1, 2, 37, 131, 21, 70, "causal"),
        regions.attention(rng, 2, 1, 70, 70, 4, 3, "window"),
        regions.nearest(rng, 33, 65, 8),
        regions.attention(rng, 1, 2, 40, 72, 24, 68, "causal", F16),
        regions.distances(rng, 37, 70, 19),
    ]
    kernels = [generate(m.region, "full") for m in made]
    emulator = Emulator(kernels, tmp_path, form)
    for n, (m, kernel) in enumerate(zip(made, kernels, strict=True)):
        assert [g.entry[-6:] for g in kernel.grids(tuple(m.region.bounds))] == ["region"]
        out = np.full(m.region.shape, 7).astype(m.region.dtype.numpy)
        emulator.call(kernel, m.region.bounds, [out], m.operands, [0] * len(m.region.bounds), falling=n % 2 == 0)
        close(out, m.expected.astype(out.dtype), 4e-3 if out.dtype == np.float16 else 2e-5)


def test_columns_that_a_mask_excludes_are_not_read(tmp_path: Path) -> None:
    """A NaN among the values of columns beyond the diagonal of all rows of a block, as on a CPU."""
    made = regions.attention(np.random.default_rng(0), 1, 1, 64, 192, 8, 8, "causal")
    made.operands[2][0, 0, 64:] = np.nan
    kernel = generate(made.region, "full")
    out = np.zeros(made.region.shape, np.float32)
    emulator = Emulator([kernel], tmp_path)
    emulator.call(kernel, made.region.bounds, [out], made.operands, [0] * len(made.region.bounds))
    assert np.isfinite(out).all()


def test_shared_memory_leaves_room_for_the_flags(tmp_path: Path) -> None:
    """Static and dynamic shared memory together come close to what a kernel gets, and are not more."""
    used = []
    for width in range(50, 260):
        region = regions.attention(np.random.default_rng(0), 1, 1, 64, 64, 2, width).region
        (launch,) = generate(region, "full").grids(tuple(region.bounds))
        used.append(launch.shared_nbytes)
    static = Emulator([generate(region, "full")], tmp_path).library.static_shared()
    assert static and (48 << 10) - 1024 < max(used) + static <= 48 << 10


def test_long_sums_of_regions(tmp_path: Path) -> None:
    """A block of threads adds many columns to each state."""
    rng, t = np.random.default_rng(0), 6_000
    region = regions.attention(rng, 1, 1, 2, t, 2, 3).region
    q, k, v = np.zeros((1, 1, 2, 2), np.float32), np.ones((1, 1, t, 2), np.float32), np.full((1, 1, t, 3), 0.1)
    q[0, 0, 1] = -0.7  # equal scores that are not exact
    whole, touch, finish = (generate(region, mode) for mode in ("full", "accumulate", "finalize"))
    emulator = Emulator([whole, touch, finish], tmp_path)
    operands, origins = (q, k, v.astype(np.float32)), [0] * len(region.bounds)
    found, again = (np.empty(region.shape, np.float32) for _ in range(2))
    emulator.call(whole, region.bounds, [found], operands, origins)
    state = [np.empty(x, d.numpy) for x, d in region.components(region.bounds)]
    emulator.call(touch, region.bounds, state, operands, origins, True)
    emulator.call(finish, region.bounds, [again], state, origins)
    for out in (found, again):
        assert np.abs(out - np.float64(np.float32(0.1))).max() <= 20 * np.spacing(np.float32(0.1))


def _region(emulator: Emulator, made: regions.Made, kernels: list) -> None:
    region, (whole, touch, finalize, combine) = made.region, kernels
    origins = [0] * len(region.bounds)
    for falling in (False, True):
        out = np.full(region.shape, 7).astype(region.dtype.numpy)
        status = emulator.call(whole, region.bounds, [out], made.operands, origins, falling=falling)
        close(out, made.expected.astype(out.dtype), 2e-5)
        assert status[0] == 0
    out = np.full(region.shape, 7).astype(region.dtype.numpy)
    for kept, boxes in _tiles(region):
        shape = [b - a for a, b in kept] + list(region.bounds[region.n_out :])
        state, other = ([np.full(x, 1).astype(d.numpy) for x, d in region.components(shape)] for _ in range(2))
        half = len(boxes) // 2
        for n, box in enumerate(boxes):
            extents, at = [b - a for a, b in box], [a for a, _ in box]
            own, first = (state, n == 0) if n < half else (other, n == half)
            emulator.call(touch, extents, own, parts(region, made.operands, box), at, first, falling=bool(n % 2))
        emulator.call(combine, shape, state, other, [0] * len(shape), half == 0)
        emulator.call(
            finalize, shape, [out[tuple(slice(*e) for e in kept)]], state, [a for a, _ in kept] + origins[len(kept) :]
        )
    close(out, made.expected.astype(out.dtype), 2e-5)


def _tiles(region: Region):
    step = [n if p in region.whole else max(1, -(-n // 2)) for p, n in enumerate(region.bounds)]
    ends = [[(lo, min(lo + w, n)) for lo in range(0, n, w)] for n, w in zip(region.bounds, step, strict=True)]
    for kept in product(*ends[: region.n_out]):
        yield kept, [kept + rest for rest in product(*ends[region.n_out :])]


def test_products_of_any_semiring(tmp_path: Path) -> None:
    """Tiles of 64 with edges, batches, sides in any order of axes, folded again and again."""
    cases = []
    for op, join, dtype, accesses in PRODUCTS:
        a, b = OperandRef(0, dtype), OperandRef(1, dtype)
        expr = ScalarCall(join, (a, b), dtype)
        if op == "sum" and join == "sub":
            expr = ScalarCall("mul", (expr, expr), dtype)
        e = Einsum(tuple("bijkl"), (2, 70, 37, 9, 5), 3, accesses, (dtype, dtype), expr, aggregation(op, dtype))
        rng = np.random.default_rng(len(cases))
        operands = tuple(rng.integers(-9, 9, e.operand_shape(s)).astype(dtype.numpy) for s in range(2))
        cases.append((e, operands, generate(e, "full"), generate(e, "accumulate"), generate(e, "finalize")))
    emulator = Emulator([k for c in cases for k in c[2:]], tmp_path)
    for n, (e, operands, whole_, accumulate, finalize) in enumerate(cases):
        assert [g.entry[-7:] for g in whole_.grids(e.bounds)] == ["product"]
        out = np.zeros(e.shape, e.dtype.numpy)
        emulator.call(whole_, e.bounds, [out], operands, [0] * 5, falling=n % 2 == 0)
        close(out, evaluate_einsum(e, operands)[0])
        out = np.zeros(e.shape, e.dtype.numpy)
        state = [np.zeros(e.shape, d.numpy) for d in e.state_dtypes]
        for i, (lo, hi) in enumerate(((4, 9), (0, 4))):
            box = (*((0, m) for m in e.bounds[:3]), (lo, hi), (0, 5))
            cut = parts(e, operands, box)
            emulator.call(
                accumulate, [b - a for a, b in box], state, cut, [a for a, _ in box], i == 0, falling=n % 2 == 1
            )
        emulator.call(finalize, e.bounds, [out], state, [0] * 5)
        close(out, evaluate_einsum(e, operands)[0])


@pytest.mark.parametrize("form", ["checked", "ptx"])
def test_rows_moved_in_vectors(form: Form, tmp_path: Path) -> None:
    """Gathers and scatters whose threads have several elements of a row, and rows that vectors do not divide."""
    if form == "ptx" and no_nvrtc():
        pytest.skip(no_nvrtc())

    def wide(array: np.ndarray) -> np.ndarray:
        """The array as a part of one whose rows are a multiple of 64 bytes."""
        step = 64 // array.itemsize
        room = np.zeros((len(array), -(-array.shape[1] // step) * step), array.dtype)
        room[:, : array.shape[1]] = array
        return room[:, : array.shape[1]]

    rng, cases = np.random.default_rng(2), []
    for dtype, width in ((F32, 24), (F16, 27), (F64, 13), (I8, 20)):
        n, groups = 1100, 40
        keys, kept = rng.integers(0, groups, n), aggregation("sum", dtype, keyed=True)
        sides = (dtype, I64), OperandRef(0, dtype)
        shapes = ((n, width), (n,))
        cases.append((Einsum(
            tuple("udi"), (groups, width, n), 2, ((2, 1), (2,)), *sides, kept, shapes, (Key(0, OperandRef(1, I64)),)
        ), (wide(rng.integers(-9, 9, (n, width)).astype(dtype.numpy)), keys)))  # fmt: skip
        cases.append((Einsum(
            tuple("sdv"), (n, width, groups), 2, ((2, 1), (0,)), *sides, aggregation("pick", dtype),
            ((groups, width), (n,)), (Key(2, OperandRef(1, I64)),),
        ), (wide(rng.integers(-9, 9, (groups, width)).astype(dtype.numpy)), keys)))  # fmt: skip
    kernels = []
    for e, operands in cases:
        out = wide(np.zeros(e.shape, e.dtype.numpy))
        kernels.append(generate(e, "full", layout(e, "full", e.bounds, [view(x) for x in operands], [view(out)])))
    assert all(kernel.layout.vector > 1 for kernel in kernels)
    emulator = Emulator(kernels, tmp_path, form)
    for (e, operands), kernel in zip(cases, kernels, strict=True):
        out = wide(np.zeros(e.shape, e.dtype.numpy))
        emulator.call(kernel, e.bounds, [out], operands, [0, 0, 0])
        close(out, evaluate_einsum(e, operands)[0])


def test_long_sums_of_products(tmp_path: Path) -> None:
    """More terms than a partial sum has."""
    gap = ScalarCall("sub", (OperandRef(0, F32), OperandRef(1, F32)), F32)
    square = ScalarCall("mul", (gap, gap), F32)
    e = Einsum(tuple("ijk"), (33, 40, 600), 2, ((0, 2), (1, 2)), (F32, F32), square, aggregation("sum", F32))
    operands = [np.full(e.operand_shape(s), x, np.float32) for s, x in enumerate((0.25, 1.5))]
    kernel, out = generate(e, "full"), np.zeros(e.shape, np.float32)
    Emulator([kernel], tmp_path).call(kernel, e.bounds, [out], operands, [0, 0, 0])
    np.testing.assert_array_equal(out, np.full(e.shape, 600 * 1.25**2, np.float32))


@pytest.mark.parametrize("op", ["sum", "mean", "argmax", "logsumexp"])
def test_many_groups_of_many_rows(op: str, tmp_path: Path) -> None:
    """Sorted in several passes; rows of one group meet in the order in which they lie."""
    keyed = aggregation(op, F32, keyed=True)
    shapes, keys = ((5000, 3), (5000,)), (Key(0, OperandRef(1, I64)),)
    e = Einsum(tuple("udi"), (300, 3, 5000), 2, ((2, 1), (2,)), (F32, I64), OperandRef(0, F32), keyed, shapes, keys)
    rng = np.random.default_rng(1)
    operands = rng.integers(-9, 9, (5000, 3)).astype("f"), rng.integers(0, 300, 5000) ** 2 // 300
    kernel = generate(e, "full")
    assert [g.entry[-5:] for g in kernel.grids(e.bounds)].count("place") == 3
    emulator = Emulator([kernel], tmp_path)
    for falling in (False, True):
        out = np.zeros(e.shape, e.dtype.numpy)
        emulator.call(kernel, e.bounds, [out], operands, [0, 0, 0], falling=falling)
        close(out, evaluate_einsum(e, operands)[0])


@pytest.mark.parametrize("op", ["sum", "mean", "logsumexp"])
def test_groups_of_many_rows_round_like_blocks_of_them(op: str, tmp_path: Path) -> None:
    """Terms of a thread added one after the other are off by 1.7e-4 here."""
    keyed = aggregation(op, F32, keyed=True)
    n, keys = 1_200_000, (Key(0, OperandRef(1, I64)),)
    e = Einsum(tuple("ui"), (2, n), 1, ((1,), (1,)), (F32, I64), OperandRef(0, F32), keyed, ((n,), (n,)), keys)
    operands = np.full(n, 0.1, "f"), np.arange(n) % 2
    with mock.patch.multiple(scatters, _MIN_GROUPS=1, _MIN_ROWS=1):
        kernel = generate(e, "full")
        out = np.zeros(2, e.dtype.numpy)
        Emulator([kernel], tmp_path).call(kernel, e.bounds, [out], operands, [0, 0])
    tenth = float(np.float32(0.1))
    exact = {"sum": n / 2 * tenth, "mean": tenth, "logsumexp": tenth + np.log(n / 2)}[op]
    assert np.all(abs(out - exact) <= 2e-6 * exact), (out - exact) / exact


PRODUCTS = (
    ("min", "add", F32, ((0, 1, 3, 4), (0, 3, 4, 2))),
    ("max", "mul", I32, ((1, 3, 4), (4, 2, 3))),
    ("sum", "sub", F64, ((3, 1, 0, 4), (2, 4, 3))),
    ("logsumexp", "add", F32, ((1, 3, 4, 0), (2, 3))),
    ("argmin", "sub", F32, ((1, 3), (0, 2, 4))),
    ("sum", "mul", I8, ((1, 3, 4, 0), (2, 3, 0))),
    ("sum", "mul", C64, ((1, 3), (0, 3, 2))),
    ("max", "add", F16, ((1, 3), (0, 3, 2, 4))),
    ("any", "and", BOOL, ((0, 1, 3), (3, 2, 4))),
)
