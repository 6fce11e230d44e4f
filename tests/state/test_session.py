"""Sessions: many steps, the same answers whatever the memory, states where they are in between."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.api.held_values import HeldValues
from einturnip.core.errors import BindError, CapacityError, RunError
from einturnip.core.regular_files import temporary_path
from einturnip.storage.arrays import ArraySink
from tests.drawn import examples

TURN = """state A : f64[n, n]
input x : f64[n]
A[i, j] <- A[j, i] + x[i]
B[i, j] = sum[k] A[i, k] * A[k, j]
c = sum[i, j] B[i, j]
output c
"""


def turned(a, xs):
    found = []
    for x in xs:
        found.append((a @ a).sum())
        a = a.T + x[:, None]
    return a, found


def data(n=60, steps=4):
    rng = np.random.default_rng(n)
    return rng.integers(-3, 4, (n, n)).astype(np.float64), rng.integers(-2, 3, (steps, n)).astype(np.float64)


@pytest.mark.parametrize(
    ("kind", "budget", "where"),
    [
        ("arena", "4MiB", "memory"),
        ("memory", "200MiB", "memory"),
        ("arena", "12KiB", "file"),
        ("arena", "40KiB", "memory"),
    ],
)
def test_the_same_answers_wherever_states_live(kind, budget, where) -> None:
    a, xs = data()
    wanted, sums = turned(a, xs)
    with et.compile(TURN).session(A=a, **{kind: budget}) as session:
        assert [session.step(x=x)["c"] for x in xs] == sums
        np.testing.assert_array_equal(session.state("A"), wanted)
        assert session.steps == len(xs)
        assert isinstance(session._held.storages["A"].read, ArraySink) == (where == "memory")
    a, xs = data()
    np.testing.assert_array_equal(turned(a, xs)[0], wanted)  # the caller's array is as it was


@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_two_states_that_read_each_other(drawn) -> None:
    n, m = drawn.draw(st.integers(1, 9)), drawn.draw(st.integers(1, 9))
    left = drawn.draw(st.sampled_from(["V[j, i]", "sum[k] V[k, i] * U[k, j]", "U[n-1-i, j] + V[j, i]", "U[i, j] + 1"]))
    if "U[k, j]" in left:
        n = m
    text = f"state U : f64[n, m]\nstate V : f64[m, n]\nU[i, j] <- {left}\n"
    text += "V[j, i] <- V[j, i] + U[n-1-i, j]\ns = sum[i,j] U[i,j]\noutput s"
    rng = np.random.default_rng(drawn.draw(st.integers(0, 99)))
    u, v = rng.integers(-2, 3, (n, m)).astype(float), rng.integers(-2, 3, (m, n)).astype(float)
    arena = drawn.draw(st.sampled_from(["2KiB", "4KiB", "1MiB"]))
    with et.compile(text).session(U=u, V=v, arena=arena) as session:
        for _ in range(3):
            new = {"V[j, i]": v.T, "U[i, j] + 1": u + 1, "U[n-1-i, j] + V[j, i]": u[::-1] + v.T}.get(left)
            new = v.T @ u if new is None else new
            assert session.step()["s"] == u.sum()
            u, v = new, v + u[::-1].T
        np.testing.assert_array_equal(session.state("U"), u)
        np.testing.assert_array_equal(session.state("V"), v)


def test_inputs_of_other_shapes_get_plans_of_their_own() -> None:
    text = "input x : f64[b]\nstate t : f64 = 0\nt <- t + sum[b] x[b]\nm = max[b] x[b]\noutput m"
    with et.compile(text).session(arena="64KiB") as session:
        for b in (1, 4, 9, 4, 1, 9):
            assert session.step(x=np.arange(float(b)))["m"] == b - 1
        assert session.state("t") == 2 * (0 + 6 + 36)
        assert len(session._plans) == 3


def test_a_checkpoint_is_gone_on_from(tmp_path) -> None:
    a, xs = data(8, 6)
    program = et.compile(TURN)
    with program.session(A=a, arena="1MiB") as session:
        for x in xs[:3]:
            session.step(x=x)
        session.save(tmp_path)
    torn = Path(temporary_path(str(tmp_path / "step-000000009")))
    torn.mkdir()
    with program.session(A=a, arena="1MiB") as session:
        assert session.load(tmp_path) and session.steps == 3
        for x in xs[3:]:
            session.step(x=x)
        np.testing.assert_array_equal(session.state("A"), turned(a, xs)[0])
        session.save(tmp_path)
        session.save(tmp_path)
    assert not torn.exists()
    with et.compile("state B : f64 = 0\nB <- B + 1").session() as other, pytest.raises(BindError, match="other states"):
        other.load(tmp_path)


def test_a_state_can_be_looked_at_and_set() -> None:
    text = "state k : i64 = 3\nstate c : f64[2] = 1\nk <- k + 1\ns = sum[i] c[i] + k\noutput s, k"
    with et.compile(text).session() as s:
        assert s.state("k") == 3 and list(s.state("c")) == [1, 1]
        s.set_state("c", np.array([2.0, 3.0]))
        assert s.step()["s"] == 8
        s.set_state("k", np.array(10))
        assert s.step()["s"] == 15 and s.state("k") == 11
        with pytest.raises(BindError, match="state"):
            s.state("missing")
        with pytest.raises(BindError, match="set_state"):
            s.step(k=1)
        with pytest.raises(BindError, match="shape"):
            s.set_state("k", np.zeros(3, np.int64))


def test_a_step_that_fails_half_way_leaves_no_session_to_go_on_with() -> None:
    text = "state W : f64[4] = 0\ninput K : i64[1]\ninput V : f64[4]\nW[j] <- W[j] + 1\nu[a] = V[K[a]]\noutput u"
    with et.compile(text).session(V=np.arange(4.0)) as session:
        assert session.step(K=np.array([2]))["u"] == 2
        with pytest.raises(RunError):
            session.step(K=np.array([7]))
        with pytest.raises(RunError, match="checkpoint"):
            session.step(K=np.array([1]))
        closed = session
    with pytest.raises(RunError, match="closed"):
        closed.step(K=np.array([1]))


def by_threads(progress: object) -> None:
    """Where progress is shown, no step is so small that the caller's thread runs it."""


def crews() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("einturnip-")}


def test_threads_and_arena_stay_between_steps_and_go_with_the_session() -> None:
    before = crews()
    text = "input X : f64[n, m]\nstate W : f64[m, k] = 1\nY[i,l] = sum[j] X[i,j] * W[j,l]\nW[j,l] <- W[j,l] + 1\n"
    with et.compile(text + "s = sum[i,l] Y[i,l]\noutput s").session(W=np.ones((300, 40)), arena="150KiB") as session:
        for n, fresh in ((400, True), (400, False), (500, True), (400, True), (400, False)):
            held = crews() - before
            steps, found = session.steps, session.step(X=np.ones((n, 300)), progress=by_threads)
            assert found["s"] == n * 300 * 40 * (1 + steps)
            assert (crews() - before != held) == fresh and len(crews() - before) >= 3  # those of one plan, not of two
    assert crews() == before


def test_a_session_goes_on_in_a_forked_process() -> None:
    """Threads stay behind in the parent: the child has its own."""
    text = "state W : f64[300, 300] = 1\nV[i,j] = sum[k] W[i,k] * W[k,j]\n"
    text += "W[i,j] <- W[i,j] + 0 * V[i,j] + 1\ns = max[i,j] W[i,j]\noutput s"
    with et.compile(text).session(arena="300KiB") as session:
        assert session.step(progress=by_threads)["s"] == 1
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if session.step(progress=by_threads)["s"] == 2 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session.step(progress=by_threads)["s"] == 2


@pytest.mark.parametrize("arena", ["120KiB", "1MiB"])
def test_reproducible_steps_have_the_same_bits_in_any_memory(arena) -> None:
    a = np.random.default_rng(3).standard_normal((60, 60)) / 8
    program, found = et.compile(TURN), []
    for options in ({"arena": "4MiB", "workers": 2}, {"arena": arena, "workers": 1}):
        with program.session(A=a, reproducible=True, **options) as session:
            sums = [float(session.step(x=a[k])["c"]) for k in range(4)]
            found.append((sums, session.state("A").tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(("memory", "copies"), [("256MiB", 2), ("64MiB", 1)])
def test_a_large_state_is_worked_on_where_it_is_if_two_copies_fit(memory, copies) -> None:
    text = "state W : f32[n]\ninput g : f32[n]\nW[i] <- W[i] - 0.5 * g[i]\ns = max[i] W[i]\noutput s"
    g = np.random.default_rng(0).integers(-9, 9, 5_000_000).astype(np.float32)
    with et.compile(text).session(W=np.zeros_like(g), memory=memory) as session:
        seen = []
        for step in range(4):
            assert session.step(g=g)["s"] == (step * -0.5 * g).max()
            source = session.source("W")
            seen.append(source.array.ctypes.data if isinstance(source, ArraySink) else None)
        assert len(set(seen)) == copies
        np.testing.assert_array_equal(session.state("W"), -2 * g)


def test_second_copies_make_way_for_a_plan_that_does_not_fit_beside_them(monkeypatch) -> None:
    text = "state W : f64[n]\ninput g : f64[b]\nW[i] <- W[i] + sum[j] g[j]\ns = max[i] W[i]\noutput s"
    with et.compile(text).session(W=np.zeros(1_000_000), memory="256MiB") as session:
        assert session.step(g=np.ones(2))["s"] == 0
        home, planned = session._held.storages["W"], HeldValues._planned
        assert home.write is not home.read

        def refused(self, *arguments):
            if home.write is not home.read:
                raise CapacityError("too small", 1)
            return planned(self, *arguments)

        monkeypatch.setattr(HeldValues, "_planned", refused)
        assert session.step(g=np.ones(3))["s"] == 2 and home.write is home.read
        assert session.step(g=np.ones(2))["s"] == 5 and session.step(g=np.ones(3))["s"] == 7


def test_large_inputs_are_read_where_they_stand_until_others_are_given() -> None:
    text = "input W : f32[n, m], x : f32[m]\ny[i] = sum[j] W[i, j] * x[j]\nz[i] = y[i] * y[i]\noutput z"
    rng = np.random.default_rng(0)
    first, other = (rng.integers(-3, 4, (256, 128)).astype(np.float32) for _ in range(2))
    x = rng.integers(-3, 4, 128).astype(np.float32)
    with et.compile(text).session() as session:
        for w in (first, first, other, other, first):
            for _ in range(2):
                np.testing.assert_array_equal(session.step(W=w, x=x)["z"], (w @ x) ** 2)
                w[rng.integers(256), rng.integers(128)] += 1  # what changed between the steps is seen
                x += 1
