"""Prepared plans run by threads on the arrays of each call: nothing of a run is left for the next."""

import dataclasses
import gc
import threading
import weakref
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.api import plan_cache, prepared_plan
from einturnip.memgraph.types import OpKind
from einturnip.runtime.host.driver_choice import step_driver
from einturnip.runtime.host.prepared_run import PreparedRun
from einturnip.runtime.host.row_dependencies import dependencies
from tests.runtime.interrupting import interrupts

ARENA = "8MiB"


@pytest.fixture
def runs(monkeypatch):
    """The runs that are made ready, each with how often it has run since."""
    plan_cache.forget()
    made = {}

    class Counted(PreparedRun):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made[id(self)] = 0

        def run(self, *arguments):
            made[id(self)] += 1
            return super().run(*arguments)

    monkeypatch.setattr(prepared_plan, "PreparedRun", Counted)
    return made


def numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


PROGRAMS = {
    "where it stands": (
        "input X : f64[i,j]\nZ[i,j] = 2 * X[i,j] + 1\noutput Z\n",
        lambda s: {"X": numbers(s, 700, 900)},
        lambda X: 2 * X + 1,
    ),
    "turned": (
        "input X : f64[i,j]\nZ[j,i] = X[i,j]\noutput Z\n",
        lambda s: {"X": numbers(s, 600, 800)},
        lambda X: X.T,
    ),
    "accumulated": (
        "input A : f64[i,k], B : f64[k,j]\nZ[i,j] = max[k] (A[i,k] + B[k,j])\noutput Z\n",
        lambda s: {"A": numbers(s, 90, 6000), "B": numbers(s + 1, 6000, 80)},
        lambda A, B: (A[:, :, None] + B).max(1),
    ),
    "in two statements": (
        "input A : f64[i,k], B : f64[k,j]\nC[i,j] = A[i,k] * B[k,j]\nZ[i] = max[j] C[i,j]^2\noutput Z\n",
        lambda s: {"A": numbers(s, 500, 300), "B": numbers(s + 1, 300, 400)},
        lambda A, B: ((A @ B) ** 2).max(1),
    ),
    "every other row": (
        "input X : f64[i,j]\nZ[j] = sum[i] X[i,j]\noutput Z\n",
        lambda s: {"X": numbers(s, 1200, 700)[::2]},
        lambda X: X.sum(0),
    ),
    "backwards": (
        "input X : f64[i,j]\nZ[j] = sum[i] X[i,j]\noutput Z\n",
        lambda s: {"X": numbers(s, 1200, 700)[:, ::-1]},
        lambda X: X.sum(0),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_run_reads_its_own_arrays(name, runs):
    text, inputs, right = PROGRAMS[name]
    program, kept = et.compile(text), []
    for seed in range(4):
        given = inputs(seed)
        kept.append((program(**given, arena=ARENA)["Z"], right(**given)))
    assert all((z == wanted).all() for z, wanted in kept), "a later run wrote to an earlier one's result"
    assert sum(runs.values()) == 3, "the first at length, the others made ready (anew where compiling ended meanwhile)"


@pytest.mark.parametrize("workers", [1, 2])
def test_what_reads_a_result_where_it_stands_waits_for_it(runs, workers):
    """Tiles of T are results made in the caller's array, and read there by what comes after."""
    steps = "T[k,i] = A[i,k] + 1\nC[i,j] = T[k,i] * B[k,j]\ns[i] = sum[j] C[i,j]\noutput C, s, T\n"
    program = et.compile(f"input A : f32[i,k]\ninput B : f32[k,j]\n{steps}")
    for seed in range(4):
        A, B = (numbers(seed + n, 150, 150).astype(np.float32) for n in (0, 9))
        result = program(A=A, B=B, arena="512KiB", workers=workers)
        assert (result["T"] == A.T + 1).all() and (result["C"] == (A + 1) @ B).all()
    assert sum(runs.values())


def test_a_run_is_reported_like_one_at_length(runs):
    program = et.compile("input X : f64[i,j]\nZ[i,j] = sqrt(X[i,j])\noutput Z\n")
    X = -np.ones((800, 900))
    at_length, again = program(X=X, arena=ARENA).report, program(X=X, arena=ARENA).report
    assert sum(runs.values()) == 1
    assert again.warnings == at_length.warnings and again.warnings[0].line == 2
    assert again.link_bytes == at_length.link_bytes and again.ops == at_length.ops
    assert sorted(again.order) == sorted(at_length.order)
    assert again.lanes["compute"] > 0 and "sqrt" in program(X=X, arena=ARENA).analyze().text()


def test_an_error_names_its_statement_and_the_next_run_is_sound(runs):
    program = et.compile("input X : f64[n,d]\ninput k : i64[m]\nY[i,e] = X[k[i],e]\noutput Y\n")
    X, k = numbers(0, 500, 600), np.arange(400)
    wrong = np.where(k == 399, 500, k)
    for _ in range(2):
        assert (program(X=X, k=k, arena=ARENA)["Y"] == X[:400]).all()
        with pytest.raises(et.RunError, match="line 3.*500"):
            program(X=X, k=wrong, arena=ARENA)
    assert sum(runs.values()) >= 2


def test_arrays_are_held_no_longer_than_the_run(runs):
    program = et.compile("input X : f64[i,j]\nZ[i,j] = 2 * X[i,j] + 1\noutput Z\n")
    alive = []
    for seed in range(3):
        X = numbers(seed, 700, 900)
        Z = program(X=X, arena=ARENA)["Z"]
        alive += [weakref.ref(X), weakref.ref(Z)]
        del X, Z
    gc.collect()
    assert sum(runs.values()) == 2 and not any(ref() is not None for ref in alive)


def test_an_array_that_is_not_aligned_is_run_at_length(runs):
    program, X = et.compile("input X : f64[i,j]\nZ[i,j] = 2 * X[i,j] + 1\noutput Z\n"), numbers(0, 700, 900)
    odd = np.zeros(X.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(X.shape)
    odd[...] = X
    for _ in range(2):
        assert (program(X=X, arena=ARENA)["Z"] == 2 * X + 1).all()
        assert (program(X=odd, arena=ARENA)["Z"] == 2 * X + 1).all()
    assert sum(runs.values()) == 1


def test_a_stated_memory_has_back_what_earlier_runs_left(runs):
    """Intermediate values stay in the arena for the next call, but not when a call states its memory."""
    text, size = "input x : f32[n]\nA[i] = exp(x[i])\nZ = max[i] A[i] * A[n - 1 - i]\noutput Z\n", 8 << 20
    program, x = et.compile(text), np.zeros(size, np.float32)
    other = et.compile("input x : f32[n]\nZ[i] = x[i] + 1\noutput Z\n")
    for _ in range(3):
        program(x=x)
    waiting = [run for kept in plan_cache._plans.values() for run in kept.prepared._idle_runs]
    assert waiting and sum(runs.values()) == 2
    arenas = [weakref.ref(run._prepared.arena) for run in waiting]
    del waiting
    other(x=x[:100].copy(), memory="100MiB")
    gc.collect()
    assert all(arena() is None for arena in arenas)


def test_an_interrupt_ends_the_run_and_the_next_one_is_sound(runs):
    text, inputs, right = PROGRAMS["accumulated"]
    program, given = et.compile(text), inputs(0)
    wanted = right(**given)
    call = partial(program, **given, arena=ARENA)
    assert interrupts(call) >= 20 and (program(**given, arena=ARENA)["Z"] == wanted).all()


def test_threads_share_a_plan(runs):
    text, inputs, right = PROGRAMS["accumulated"]
    program, wrong = et.compile(text), []
    cases = [inputs(seed) for seed in range(3)]
    wanted = [right(**case) for case in cases]

    def work(k):
        for _ in range(4):
            if not (program(**cases[k], arena=ARENA)["Z"] == wanted[k]).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sum(runs.values())


class Graph:
    """Ops that read and write bytes of the arena, and nothing else."""

    def __init__(self, ops):
        n = len(ops)
        self.kind, self.seconds = np.zeros(n, np.uint8), np.ones(n)
        self.unit = np.array([unit for unit, _, _ in ops], np.int32)
        for name, side in (("read", 1), ("write", 2)):
            rows = [(0, at, size, value) for op in ops for at, size, value in op[side]]
            setattr(self, name, np.array(rows, np.int64).reshape(-1, 4))
            setattr(self, f"{name}_ptr", np.cumsum([0, *(len(op[side]) for op in ops)]))


ACCESSES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 5)), max_size=3)
OPS = st.lists(st.tuples(st.integers(-1, 2), ACCESSES, ACCESSES), max_size=12)


def meets(a, b):
    """Whether one of two ops writes what the other touches, apart from an accumulator of both."""
    if a[0] >= 0 and a[0] == b[0]:
        return False
    pairs = [(x, y) for x in a[2] for y in (*b[1], *b[2])] + [(x, y) for x in a[1] for y in b[2]]
    return any(share(x, y) for x, y in pairs if x[1] and y[1])


def share(x, y):
    """Whether two accesses meet: at bytes of the arena, or of one value that lies outside it."""
    if {x[2], y[2]} & ELSEWHERE:
        return x[2] == y[2]
    return x[0] < y[0] + y[1] and y[0] < x[0] + x[1]


ELSEWHERE = {4, 5}


@given(OPS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_ops_wait_for_whom_they_meet_and_no_others(ops, left_out):
    kept = [k for k in range(len(ops)) if not left_out[k]]
    stays, before = [ops[k] for k in kept], []
    for k, direct in enumerate(dependencies(Graph(ops), kept, ELSEWHERE.__contains__)):
        assert all(p < k and meets(stays[p], stays[k]) for p in direct)
        before.append(set(direct).union(*(before[p] for p in direct)))
        assert {p for p in range(k) if meets(stays[p], stays[k])} <= before[k]
        assert len(direct) == len(set(direct) - set().union(*(before[p] for p in direct))), "one wait implies another"


@pytest.mark.parametrize(("source", "driver"), [("y", "inline"), ("w", "event loop")])
def test_threads_run_steps_only_if_ops_need_not_wait_for_each_other(source, driver):
    text = "input x : f64[n], w : f64[n], k : i64[n]\ny[i] = x[k[i]]\nz[i] = {}[k[i]]\noutput y, z"
    graph = et.compile(text.format(source)).plan(x=np.zeros(8), w=np.zeros(8), k=np.arange(8))._job.planned.memgraph
    kernels = graph.kind == OpKind.KERNEL
    assert kernels.sum() > 1
    assert step_driver(dataclasses.replace(graph, seconds=kernels * 1.0), 2) == driver
