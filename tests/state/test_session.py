"""Sessions: many steps, the same answers whatever the memory, states where they are in between."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import BindError, RunError
from einturnip.stores.arrays import ArraySink

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
        assert isinstance(session._homes["A"].read, ArraySink) == (where == "memory")
    a, xs = data()
    np.testing.assert_array_equal(turned(a, xs)[0], wanted)  # the caller's array is as it was


@given(st.data())
@settings(max_examples=25, deadline=None)
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
    torn = tmp_path / ".step-000000009-dead.tmp"
    torn.mkdir()
    (tmp_path / "step-000000010").mkdir()  # without its last file: never finished
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
