"""Keys against the reference: gathers and scatters of every aggregation, on any tile, and what stops them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import OutOfRange
from einturnip.cost.kernel_work import kernel_flops
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, DType
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.scalar import LabelValue, OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.kernels import select
from tests.drawn import examples
from tests.reference.einsum import evaluate_einsum

from .test_indices import LANGUAGE, check_tiles
from .test_kernels import joins, run, tensor


def draw_key(draw: st.DrawFn, label: int, bounds: tuple[int, ...], free: list[int], slot: int) -> tuple[Key, tuple]:
    """A key over some of the labels that are no keys, its operand's access and dtype."""
    access = tuple(draw(st.lists(st.sampled_from(free), max_size=2, unique=True))) if free else ()
    dtype = draw(st.sampled_from((I64, I32, I8)))
    value: Scalar = OperandRef(slot, dtype) if dtype == I64 else ScalarCast(OperandRef(slot, dtype), I64)
    if free and draw(st.booleans()):
        value = ScalarCall("add", (value, LabelValue(draw(st.sampled_from(free)))), I64)
    return Key(label, ScalarCall("mod", (value, ScalarConst(bounds[label], I64)), I64)), (access, dtype)


@st.composite
def keyed(draw: st.DrawFn, scatter: bool) -> Einsum:
    """Small einsums with one or two keys."""
    n_labels = draw(st.integers(2, 5))
    n_out = draw(st.integers(1 if scatter else 0, n_labels - 1))
    keys = {draw(st.integers(0, n_out - 1) if scatter else st.integers(n_out, n_labels - 1))}
    if draw(st.booleans()):
        keys.add(draw(st.integers(0 if scatter else n_out, n_labels - 1)))
    gathered = set(range(n_out, n_labels)) <= keys
    ops = LANGUAGE if scatter else ("sum", "max", "logsumexp", "any")
    op = draw(st.sampled_from(("pick",) * 4 + ops if gathered and not scatter else ops))
    sizes = st.tuples(*[st.sampled_from((1, 2, 3, 5) if p in keys else (0, 1, 2, 3, 4, 5)) for p in range(n_labels)])
    bounds = draw(sizes)
    common = draw(st.sampled_from((F32, F32, F64, I64, I8, F16, BF16) if op != "prod" else (F64, I64)))
    common = BOOL if op in ("any", "all") else common
    access = st.lists(st.integers(0, n_labels - 1), max_size=4).map(tuple)
    accesses = draw(st.lists(access, min_size=1, max_size=2))
    dtypes = [common] * len(accesses)
    join = joins(draw, tuple(dtypes), n_labels, common)
    made = []
    free = [p for p in range(n_labels) if p not in keys]
    for label in sorted(keys):
        key, (by, dtype) = draw_key(draw, label, bounds, free, len(accesses))
        made.append(key)
        accesses.append(by)
        dtypes.append(dtype)
    names = tuple("ijklm"[:n_labels])
    folded = aggregation(op, common, keyed=True)
    shapes = tuple(tuple(bounds[p] for p in a) for a in accesses)
    return Einsum(names, bounds, n_out, tuple(accesses), tuple(dtypes), join, folded, shapes, tuple(made))


@pytest.mark.parametrize("scatter", [True, False])
@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_any_keys(scatter: bool, data: st.DataObject) -> None:
    einsum = data.draw(keyed(scatter))
    operands = tuple(tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes))
    check_tiles(data, einsum, operands)


def gather(v: int, d: int, s: int, dtype: DType = F32) -> Einsum:
    """H[s, d] = E[ids[s], d]."""
    join, shapes = OperandRef(0, dtype), ((v, d), (s,))
    key = (Key(2, OperandRef(1, I64)),)
    return Einsum(
        tuple("sdv"), (s, d, v), 2, ((2, 1), (0,)), (dtype, I64), join, aggregation("pick", dtype), shapes, key
    )


def segments(g: int, d: int, n: int, op: str = "sum", dtype: DType = F32) -> Einsum:
    """Y[k[i]: g, d] = op[i] X[i, d]."""
    shapes, keys = ((n, d), (n,)), (Key(0, OperandRef(1, I64)),)
    folded = aggregation(op, dtype, keyed=True)
    return Einsum(tuple("udi"), (g, d, n), 2, ((2, 1), (2,)), (dtype, I64), OperandRef(0, dtype), folded, shapes, keys)


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
@pytest.mark.parametrize("extents", [(7, 3, 5), (7, 3, 2)])
def test_an_index_outside_its_axis_stops_a_gather(wrong: int, extents: tuple[int, ...]) -> None:
    einsum, table = gather(5, 3, 9), np.ones((extents[2], 3), np.float32)
    ids = np.array([0, 1, 2, 3, wrong, 4, 0])
    state = (np.empty((7, 3), np.float32),)
    with pytest.raises(OutOfRange) as caught:
        run(5, einsum, extents, "accumulate", state, (table, ids), (2, 0, 0))
    assert (caught.value.value, caught.value.size, caught.value.label) == (wrong, 5, "v")
    assert caught.value.point == (("s", 6),)
    whole = np.array([0, 1, 2, 3, 4, 0, wrong, 0, 0])
    with pytest.raises(OutOfRange, match="s = 6"):
        evaluate_einsum(einsum, (np.ones((5, 3), np.float32), whole))


@pytest.mark.parametrize("op", LANGUAGE)
def test_a_key_outside_its_range_stops_a_scatter(op: str) -> None:
    dtype = BOOL if op in ("any", "all") else F32
    einsum = segments(4, 2, 6, op, dtype)
    keys, x = np.array([0, 1, 4, 2, 3, 9]), np.ones((6, 2), dtype.numpy)
    state = tuple(np.empty((2, 2), d.numpy) for d in einsum.state_dtypes)
    with pytest.raises(OutOfRange, match="index 4 at i = 2 is outside 0 .. 3"):
        run(60, einsum, (2, 2, 6), "accumulate", state, (x, keys), (0, 0, 0))


def test_an_axis_without_rows_has_no_index() -> None:
    einsum = gather(0, 3, 2)
    operands = np.empty((0, 3), np.float32), np.zeros(2, np.int64)
    with pytest.raises(OutOfRange, match="empty axis"):
        run(60, einsum, einsum.bounds, "full", (np.empty((2, 3), np.float32),), operands, (0, 0, 0))
    nothing = gather(0, 3, 0)
    operands = np.empty((0, 3), np.float32), np.zeros(0, np.int64)
    run(60, nothing, nothing.bounds, "full", (np.empty((0, 3), np.float32),), operands, (0, 0, 0))


def test_rows_that_do_not_count_raise_no_flag() -> None:
    einsum, table = gather(6, 4, 5), np.full((3, 4), np.nan, np.float32)
    state = (np.empty((5, 4), np.float32),)
    ids = np.array([3, 4, 5, 3, 3])
    assert run(60, einsum, (5, 4, 3), "accumulate", state, (table, ids), (0, 0, 0)) == 0
    assert (state[0] == 0).all()


LARGE = {
    "gather": (gather(3000, 64, 20000), (20000, 64, 3000)),
    "gather, cut": (gather(3000, 64, 20000), (20000, 64, 500)),
    "elements": (gather(50000, 1, 100000), (100000, 1, 50000)),
    "f16": (gather(3000, 64, 20000, F16), (20000, 64, 3000)),
    **{
        f"{op}{', cut' * (extents[0] < 500)}": (segments(500, 64, 20000, op, BOOL if op == "any" else F32), extents)
        for op in ("sum", "max", "mean", "logsumexp", "argmax", "any")
        for extents in ((500, 64, 20000), (90, 64, 20000))
    },
    "sum of f16": (segments(500, 64, 20000, "sum", F16), (500, 64, 20000)),
}


@pytest.mark.parametrize("name", LARGE)
def test_nothing_is_allocated(name: str) -> None:
    einsum, extents = LARGE[name]
    kernel = select.compile_kernel(einsum, extents, "accumulate")
    assert kernel.workspace_nbytes <= 1 << 20
    key = einsum.keys[0].label
    rng = np.random.default_rng(0)
    box = tuple((0, n) for n in extents)
    operands = tuple(
        rng.integers(0, einsum.bounds[key] if s else 2, [hi - lo for lo, hi in einsum.operand_box(s, box)]).astype(
            d.numpy
        )
        for s, d in enumerate(einsum.dtypes)
    )
    outs = tuple(np.zeros(extents[: einsum.n_out], d.numpy) for d in einsum.state_dtypes)
    workspace = np.empty(kernel.workspace_nbytes, np.uint8)
    origins = (0,) * len(extents)
    kernel(outs, operands, origins, True, workspace)
    state = evaluate_rows(einsum, operands, extents)
    for out, expected in zip(outs, state, strict=True):
        np.testing.assert_allclose(out.astype(np.float64), expected.astype(np.float64), rtol=1e-4)
    tracemalloc.start()
    kernel(outs, operands, origins, False, workspace)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 48 << 10
    flops = kernel_flops(einsum, extents, "accumulate")
    assert flops <= 2 * extents[0] * extents[1] * (1 if key == 2 else extents[2] // extents[0] + 1)


def evaluate_rows(einsum: Einsum, operands: tuple[np.ndarray, ...], extents: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """The state of the first tile, group by group: the reference would need every group beside every row."""
    x, keys = operands
    op = einsum.aggregation.op
    if op == "pick":
        hit = keys < len(x)
        return (np.where(hit[:, None], x[np.minimum(keys, len(x) - 1)], x.dtype.type(0)),)
    one = Einsum(("u", *einsum.labels[1:]), (1, *einsum.bounds[1:]), 2, *_fields(einsum))
    states = []
    for u in range(extents[0]):
        rows = np.flatnonzero(keys == u)
        part = (x[rows], np.zeros(len(rows), np.int64))
        found = evaluate_einsum(one, part, (0, 0, 0), (1, extents[1], len(rows)), "state")
        if op == "argmax":
            found = found[0], np.where(found[1] < 0, -1, rows[found[1]])
        states.append(found)
    return tuple(np.concatenate(parts) for parts in zip(*states, strict=True))


def _fields(einsum: Einsum) -> tuple:
    return einsum.accesses, einsum.dtypes, einsum.join, einsum.aggregation, einsum.shapes, einsum.keys
