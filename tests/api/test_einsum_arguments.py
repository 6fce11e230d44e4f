"""Keyword arguments of ``einsum``: what NumPy does with them, einturnip does; sizes given to a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import einturnip as et

X = np.arange(6.0).reshape(2, 3)
F, WHOLE = X.astype("f4"), X.astype("i8")
A3 = np.arange(24.0).reshape(2, 3, 4)

Call = Callable[[Any], Any]
VALUES: dict[str, Call] = {
    "wider out": lambda m: m.einsum("ij->i", F, out=np.zeros(2)),
    "wider out, summed wide": lambda m: m.einsum("i->", np.full(3, 16777215, "f4"), out=np.zeros(())),
    "complex out": lambda m: m.einsum("ij->i", X, out=np.zeros(2, "c16")),
    "float out of integers": lambda m: m.einsum("ij->i", WHOLE, out=np.zeros(2)),
    "narrower out": lambda m: m.einsum("ij->i", X, out=np.zeros(2, "f4"), casting="same_kind"),
    "integer out": lambda m: m.einsum("ij->i", X + 0.25, out=np.zeros(2, "i8"), casting="unsafe"),
    "dtype and narrower out": lambda m: m.einsum("ij->i", F, dtype="f8", out=np.zeros(2, "f4"), casting="same_kind"),
    "wider dtype": lambda m: m.einsum("ij->i", F, dtype="f8"),
    "float dtype of integers": lambda m: m.einsum("ij->i", WHOLE, dtype="f8"),
    "complex dtype": lambda m: m.einsum("ij->i", X, dtype="c16"),
    "narrower dtype": lambda m: m.einsum("ij->i", X, dtype="f4", casting="same_kind"),
    "integer dtype": lambda m: m.einsum("ij,ij->i", X + 0.5, X, dtype="i8", casting="unsafe"),
    "equivalent": lambda m: m.einsum("ij->i", F, dtype="f4", casting="equiv"),
    "mixed": lambda m: m.einsum("ij,ij->i", F, X),
    "order C": lambda m: m.einsum("ij,jk->ki", X, X.T, order="C"),
    "order F": lambda m: m.einsum("ij,jkl->ikl", X, A3[:, :, :].transpose(1, 0, 2), order="F"),
    "order f": lambda m: m.einsum("ij,jk->ik", X, np.ones((3, 5)), order="f"),
    "order A of columns": lambda m: m.einsum("ij,kj->ik", np.asfortranarray(X), np.asfortranarray(X), order="A"),
    "order A of rows": lambda m: m.einsum("ij,kj->ik", X, X, order="A"),
    "order F of lists": lambda m: m.einsum(X, [0, 1], np.ones((3, 5)), [1, 2], [0, 2], order="F"),
    "no order": lambda m: m.einsum("ij,jk->ik", X, X.T, order=None),
    "order with out": lambda m: m.einsum("ij,jk->ik", X, X.T, order="F", out=np.zeros((2, 2))),
}
REFUSED: dict[str, Call] = {
    "narrower out": lambda m: m.einsum("ij->i", X, out=np.zeros(2, "f4")),
    "narrow float out of integers": lambda m: m.einsum("ij->i", WHOLE, out=np.zeros(2, "f4")),
    "integer out": lambda m: m.einsum("ij->i", X, out=np.zeros(2, "i8"), casting="same_kind"),
    "dtype and narrower out": lambda m: m.einsum("ij->i", F, dtype="f8", out=np.zeros(2, "f4")),
    "narrower dtype": lambda m: m.einsum("ij->i", X, dtype="f4"),
    "float dtype of wide integers": lambda m: m.einsum("ij->i", WHOLE, dtype="f4"),
    "mixed without casts": lambda m: m.einsum("ij,ij->i", F, X, casting="no"),
    "unknown dtype": lambda m: m.einsum("ij->ij", X, dtype="nonsense"),
    "unknown casting": lambda m: m.einsum("ij->ij", X, casting="nope"),
    "unknown order": lambda m: m.einsum("ij->ij", X, order="Z"),
    "shape of out": lambda m: m.einsum("ij->i", X, out=np.zeros(3)),
    "shape of a wider out": lambda m: m.einsum("ij->i", F, out=np.zeros(3)),
    "out is a list": lambda m: m.einsum("ij->i", X, out=[0, 0]),
    "text": lambda m: m.einsum("i->", np.array(["a"])),
    "label of the result": lambda m: m.einsum("ij->ik", X),
    "sizes": lambda m: m.einsum("ij,jk->ik", X, X),
    "operands": lambda m: m.einsum("ij,jk->ik", X),
    "axes": lambda m: m.einsum("ijk->i", X),
    "nothing": lambda m: m.einsum(),
    "no operand": lambda m: m.einsum("ij"),
    "twice in the result": lambda m: m.einsum("ij->ii", X),
    "arrows": lambda m: m.einsum("ij->->i", X),
    "keyword": lambda m: m.einsum("ij->i", X, nonsense=1),
}


@pytest.mark.parametrize("name", VALUES)
def test_calls_give_what_numpy_gives(name: str) -> None:
    ours, theirs = VALUES[name](et), VALUES[name](np)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    if isinstance(theirs, np.ndarray):
        assert ours.flags.c_contiguous == theirs.flags.c_contiguous
        assert ours.flags.f_contiguous == theirs.flags.f_contiguous


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_of_numpys_kind(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        REFUSED[name](np)
    kind = ValueError if isinstance(theirs.value, ValueError) else TypeError
    with pytest.raises(kind) as ours:
        REFUSED[name](et)
    assert name == "keyword" or isinstance(ours.value, et.EinturnipError)


def test_out_is_what_is_returned() -> None:
    out = np.zeros(2)
    assert et.einsum("ij->i", F, out=out) is out and (out == F.sum(1)).all()


OPTIMIZE = [False, True, None, "greedy", "optimal", ("greedy", 1000), ("optimal", 2.5)]
PATHS = [["einsum_path", (0, 1), (0, 1)], ["einsum_path", (0, 1, 2)], ("einsum_path", (1, 2), (0, 1))]
OPT_EINSUM = [np.True_, "auto", "auto-hq", "dp", "branch-2", "eager", [(0, 1), (0, 1)], [(0, 2), (0, 1)]]
NONSENSE = ["nonsense", "", 0, 2, 3.5, {"a": 1}, [], (), [1, 2], ("nonsense", 4), ("greedy", "x"), ["greedy"]]
BROKEN = [
    ["einsum_path", (0, 5)],
    ["einsum_path", (0, 1)],
    [(0, 1)],
    [(0, 0), (0, 1)],
    [(-1, 0), (0, 1)],
    [(), (0, 1, 2)],
]


@pytest.mark.parametrize("optimize", [*OPTIMIZE, *PATHS], ids=repr)
def test_optimize_takes_what_numpy_takes(optimize: Any) -> None:
    for module in (np, et):
        np.testing.assert_array_equal(module.einsum("ij,jk,kl->il", X, X.T, X, optimize=optimize), X @ X.T @ X)


@pytest.mark.parametrize("optimize", OPT_EINSUM, ids=repr)
def test_optimize_takes_what_opt_einsum_takes(optimize: Any) -> None:
    np.testing.assert_array_equal(et.einsum("ij,jk,kl->il", X, X.T, X, optimize=optimize), X @ X.T @ X)


@pytest.mark.parametrize("optimize", [*NONSENSE, *BROKEN], ids=repr)
def test_optimize_refuses_nonsense(optimize: Any) -> None:
    et.einsum("ij,jk,kl->il", X, X.T, X)  # a call that is known again is checked, too
    with pytest.raises(ValueError, match="optimize") as error:
        et.einsum("ij,jk,kl->il", X, X.T, X, optimize=optimize)
    assert isinstance(error.value, et.BindError)
    with pytest.raises(ValueError, match="optimize"):
        et.contract(X, [0, 1], X.T, [1, 2], X, [2, 3], [0, 3], optimize=optimize)


SIZED = "dim k\ninput X : f64[n]\nY[i: k] = X[0] + i\noutput Y\n"


def test_a_call_takes_the_sizes_that_its_error_asks_for() -> None:
    program = et.compile(SIZED)
    with pytest.raises(et.BindError, match="in Python dims="):
        program(X=np.ones(2))
    for k in (3, 5, 3):
        np.testing.assert_array_equal(program(X=np.ones(2), dims={"k": k})["Y"], 1.0 + np.arange(k))
    with pytest.raises(et.BindError, match="no dim 'kk'; did you mean 'k'"):
        program(X=np.ones(2), dims={"kk": 3})
    with pytest.raises(et.BindError, match="no whole number"):
        program(X=np.ones(2), dims={"k": 2.5})  # type: ignore[dict-item]
    np.testing.assert_array_equal(et.compile(SIZED, {"k": 3})(X=np.ones(2), dims={"k": 4})["Y"], 1.0 + np.arange(4))


TALLY = "dim k\nstate S : f64[k] = 0\nT[i] = S[i] + 1\nS[i] <- T[i]\noutput T\n"


def test_a_session_takes_sizes_too() -> None:
    with et.compile(TALLY).session(dims={"k": 3}) as session:
        assert session.step()["T"].shape == (3,)


def test_a_size_with_a_value_is_fixed_and_says_how_to_leave_it_open() -> None:
    text = "dim steps = 3\ninput x : f64[n]\nfor t in 0 .. steps { x[i] = x[i] + 1 }\noutput x\n"
    with pytest.raises(et.BindError, match="declare it without a value: dim steps"):
        et.compile(text)(x=np.zeros(2), dims={"steps": 2})
    free = et.compile(text.replace("dim steps = 3", "dim steps"))
    np.testing.assert_array_equal(free(x=np.zeros(2), dims={"steps": 2})["x"], [2, 2])


@pytest.mark.parametrize("arguments", [{"order": 3}, {"casting": 3}, {"casting": None}, {"optimize": 3}], ids=str)
def test_arguments_of_another_type_are_type_errors(arguments: dict[str, Any]) -> None:
    for module in (np, et):
        with pytest.raises(TypeError):
            module.einsum("ij->i", X, **arguments)  # type: ignore[attr-defined]
