"""Kernels divided among threads have the result of the whole, and report the events of each op."""

import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.api import active_runs, plan_cache, prepared_plan
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.parallel_parts import spans
from einturnip.memgraph.types import Lane, OpKind
from einturnip.runtime.host import compilation, parallel_kernels
from einturnip.runtime.host.prepared_run import PreparedRun
from einturnip.runtime.host.row_dependencies import is_sequential, merged
from tests.runtime.interrupting import interrupts

ARENA = "64MiB"
pytestmark = pytest.mark.machine_code


@pytest.fixture
def runs(tmp_path_factory, monkeypatch):
    """The runs that were made ready. Whatever can be compiled is at once, and cut in parts however short it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    for name in ("WORTH_LOADING", "START_SECONDS", "COMPILE_SECONDS"):
        monkeypatch.setattr(compilation, name, 0.0)
    monkeypatch.setattr(parallel_kernels, "MIN_CHUNK_SECONDS", 1e-9)
    made = []

    class Noted(PreparedRun):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(prepared_plan, "PreparedRun", Noted)
    plan_cache.forget()
    yield made
    plan_cache.forget()
    code_cache.forget()
    select.forget()


def numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def pair(*shapes):
    return lambda s: {name: numbers(s + k, *shape) for k, (name, shape) in enumerate(zip("XY", shapes, strict=False))}


def program(reads, equation):
    return (
        "".join(f"input {x} : f64[{axes}]\n" for x, axes in zip("XY", reads, strict=False)) + equation + "\noutput Z\n"
    )


def tropical(X, Y):
    return (X[:, :, None] + Y).max(1)


PROGRAMS = {
    "rows": (program(["i,j"], "Z[i] = sum[j] X[i,j]"), pair((900, 700)), lambda X: X.sum(1)),
    "columns": (program(["i,j"], "Z[j] = sum[i] X[i,j]"), pair((200, 4100)), lambda X: X.sum(0)),
    "points": (program(["i,j"], "Z[i,j] = 2 * X[i,j] + i"), pair((700, 900)), lambda X: 2 * X + np.c_[: len(X)]),
    "turned": (program(["i,j"], "Z[j,i] = X[i,j]"), pair((600, 800)), lambda X: X.T),
    "one axis": (program(["i"], "Z[i] = X[i] * i"), pair((700_001,)), lambda X: X * np.arange(len(X))),
    "falling": (program(["i,j"], "Z[i,j] = X[899 - i,j] + 1"), pair((900, 700)), lambda X: X[::-1] + 1),
    "tropical": (
        program(["i,k", "k,j"], "Z[i,j] = max[k] (X[i,k] + Y[k,j])"),
        pair((190, 300), (300, 170)),
        lambda X, Y: tropical(X, Y),
    ),
    "distances": (
        program(["i,d", "j,d"], "Z[i,j] = sum[d] (X[i,d] - Y[j,d])^2"),
        pair((500, 40), (600, 40)),
        lambda X, Y: ((X[:, None] - Y) ** 2).sum(2),
    ),
    "product": (
        program(["i,k", "k,j"], "Z[i,j] = 2 * X[i,k] * Y[k,j]"),
        pair((1500, 130), (130, 70)),
        lambda X, Y: 2 * X @ Y,
    ),
    "turned product": (
        program(["a,b,k", "c,k"], "Z[c,b,a] = X[a,b,k] * Y[c,k]"),
        pair((40, 50, 60), (70, 60)),
        lambda X, Y: np.einsum("abk,ck->cba", X, Y),
    ),
    "wide product": (
        program(["i,k", "k,j"], "Z[i,j] = X[i,k] * Y[k,j]"),
        pair((200, 130), (130, 1800)),
        lambda X, Y: X @ Y,
    ),
    "products": (
        program(["b,i,k", "b,k,j"], "Z[b,i,j] = X[b,i,k] * Y[b,k,j]"),
        pair((30, 60, 50), (30, 50, 70)),
        lambda X, Y: X @ Y,
    ),
    "one after the other": (
        program(["i,k", "k,j"], "P[i,j] = max[k] (X[i,k] + Y[k,j])\nZ[i,j] = max[m] (P[i,m] + P[m,j])"),
        pair((190, 150), (150, 190)),
        lambda X, Y: tropical(tropical(X, Y), tropical(X, Y)),
    ),
    "vector": (program(["i,k", "k"], "Z[i] = X[i,k] * Y[k]"), pair((900, 800), (800,)), lambda X, Y: X @ Y),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_together_do_what_the_whole_does(name, runs):
    text, inputs, right = PROGRAMS[name]
    compiled, kept = et.compile(text), []
    for seed in range(4):
        given = inputs(seed)
        kept.append((compiled(**given, arena=ARENA, workers=2)["Z"], right(**given)))
    assert all((z == wanted).all() for z, wanted in kept)
    assert runs and any(len(shared._calls) > 1 for shared in runs[-1]._parallel.values()), "nothing was shared"


def test_what_stays_packed_from_part_to_part_is_packed_anew_in_every_run(runs):
    """The same arrays at the same addresses, with other numbers."""
    text, inputs, _ = PROGRAMS["product"]
    compiled, given = et.compile(text), inputs(0)
    for seed in range(8):
        given["Y"][...] = numbers(seed, *given["Y"].shape)
        assert (compiled(**given, arena=ARENA, workers=2)["Z"] == 2 * given["X"] @ given["Y"]).all()
    assert runs and any(len(shared._calls) > 2 for shared in runs[-1]._parallel.values())


def test_a_matrix_times_itself_whichever_side_is_packed(runs):
    compiled = et.compile(
        program(["i,k"], "Z[i,j] = X[i,k] * X[k,j]").replace("input X : f64[i,k]", "input X : f64[n,n]")
    )
    for seed in range(4):
        X = numbers(seed, 412, 412)
        assert (compiled(X=X, arena="4MiB", workers=2)["Z"] == X @ X).all()


def test_what_happens_is_told_as_of_whole_tiles(runs):
    compiled, X = et.compile("input X : f64[i,j]\nZ[i,j] = sqrt(X[i,j])\noutput Z\n"), np.ones((800, 900))
    X[-1, -1] = -1
    reports = [compiled(X=X, arena=ARENA, workers=2).report for _ in range(3)]
    assert runs and runs[-1]._parallel
    assert reports[0].warnings and all(r.warnings == reports[0].warnings for r in reports)
    assert sorted(reports[-1].order) == sorted(reports[0].order) and min(reports[-1].stalls.values()) >= 0


def test_comparing_with_nan_is_nothing_invalid(runs):
    compiled, X = et.compile("input X : f64[i,j]\nZ[i] = max[j] X[i,j]\noutput Z\n"), numbers(0, 800, 900)
    X[5, 7] = np.nan
    for _ in range(3):
        result = compiled(X=X, arena=ARENA, workers=2)
        assert np.array_equal(result["Z"], X.max(1), equal_nan=True) and not result.report.warnings
    assert runs and runs[-1]._parallel


@pytest.mark.parametrize("workers", [1, 2])
def test_a_tile_with_nan_is_added_once(runs, workers):
    compiled = et.compile(program(["i,k", "k,j"], "Z[i,j] = sum[k] max(X[i,k], Y[k,j])"))
    X, Y = numbers(0, 90, 6000), numbers(1, 6000, 80)
    X[3, 10] = np.nan
    wanted = np.maximum(X[:, :, None], Y).sum(1)
    for _ in range(4):
        result = compiled(X=X, Y=Y, arena="8MiB", workers=workers)
        assert np.array_equal(result["Z"], wanted, equal_nan=True) and not result.report.warnings
    assert runs


def test_an_interrupt_ends_a_shared_run_and_the_next_one_is_sound(runs):
    text, inputs, right = PROGRAMS["tropical"]
    compiled, given = et.compile(text), inputs(0)
    wanted = right(**given)
    call = partial(compiled, **given, arena=ARENA, workers=2)
    assert interrupts(call) >= 20 and (compiled(**given, arena=ARENA, workers=2)["Z"] == wanted).all()
    assert not active_runs._active


def test_who_comes_when_a_run_is_over_finds_nothing_and_helps_in_the_next(runs):
    text, inputs, right = PROGRAMS["rows"]
    compiled, given = et.compile(text), inputs(0)
    wanted = right(**given)
    for _ in range(3):
        compiled(**given, arena=ARENA, workers=2)
    work = next(iter(runs[-1]._parallel.values()))._work
    before = work._calls.copy()
    over = threading.Event()

    def late():
        while not over.is_set():
            work.work((), Lane.COMPUTE, 1)

    thread = threading.Thread(target=late)
    work.work((), Lane.COMPUTE, 1)
    assert (work._calls == before).all()
    thread.start()
    try:
        for seed in range(60):
            given = inputs(seed)
            wanted = right(**given)
            assert (compiled(**given, arena=ARENA, workers=2)["Z"] == wanted).all()
    finally:
        over.set()
        thread.join()


def test_what_fails_in_turn_is_run_at_length(runs, monkeypatch):
    text, inputs, right = PROGRAMS["rows"]
    compiled, given, asked = et.compile(text), inputs(0), []
    for _ in range(3):
        compiled(**given, arena=ARENA, workers=2)
    assert runs[-1]._schedule is None

    def fails(*_):
        asked.append(True)
        raise ValueError("no reason")

    with monkeypatch.context() as now:
        now.setattr(parallel_kernels.ParallelOps, "run", fails)
        for _ in range(2):
            assert (compiled(**given, arena=ARENA, workers=2)["Z"] == right(**given)).all()
    assert asked and (compiled(**given, arena=ARENA, workers=2)["Z"] == right(**given)).all()


@given(st.integers(1, 5000), st.integers(1, 600), st.integers(1, 40))
def test_spans_cover_what_they_divide(extent, unit, most):
    found = spans(extent, unit, most)
    assert found[0][0] == 0 and found[-1][1] == extent and len(found) <= most
    assert all(a[1] == b[0] for a, b in zip(found, found[1:], strict=False))
    assert all(begin < end and begin % unit == 0 for begin, end in found)


@given(st.lists(st.sets(st.integers(0, 7)), max_size=8), st.sets(st.integers(0, 7)))
def test_ops_are_run_in_turn_where_no_two_could_run_together(before, shared):
    waits = [sorted(p for p in found if p < k) for k, found in enumerate(before)]
    ended = []
    for direct in waits:
        ended.append(set(direct).union(*(ended[p] for p in direct)))
    alone = [k for k in range(len(waits)) if k not in shared]
    wanted = all(p in ended[k] for k in alone for p in alone if p < k)
    assert is_sequential(waits, shared) == wanted


@given(st.lists(st.tuples(st.integers(0, 2), st.sets(st.integers(0, 11))), max_size=12))
def test_what_is_run_as_one_waits_for_all_that_its_ops_did(ops):
    nodes = [node for node, _ in ops]
    waits = [sorted(p for p in before if p < k) for k, (_, before) in enumerate(ops)]
    groups = parallel_kernels.parallel_groups([OpKind.KERNEL] * len(ops), waits, nodes.__getitem__)
    rows, found = merged(waits, groups)
    assert sorted(k for row in rows for k in row) == list(range(len(ops)))
    place = {k: new for new, row in enumerate(rows) for k in row}
    for new, row in enumerate(rows):
        direct = found[new]
        assert all(p < new for p in direct), "no op waits for one behind it"
        assert set(direct) == {place[p] for k in row for p in waits[k]}
        assert len({nodes[k] for k in row}) == 1
