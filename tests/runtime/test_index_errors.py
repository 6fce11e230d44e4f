"""An index outside its axis is reported with the tensor, the place and the value, on every path."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import OutOfRange
from tests.drawn import examples

from ..devices.conftest import put

GATHER = "input X : f32[n, d], K : i64[m, p]\nY[i, j] = sum[q] X[K[i, q], j]\noutput Y"
SCATTER = "input X : f32[m, d], K : i64[m, p]\nY[K[i, q]: 30, j] = max[i, q] X[i, j]\noutput Y"
REGION = """input X : f32[m, n], K : i64[m, p]
P[i, j] = exp(X[i, j] - max[c] X[i, c])
L[i, q] = P[i, K[i, q]] / sum[c] P[i, c]
output L"""
WAYS: list[dict[str, Any]] = [{}, {"arena": "8KiB"}, {"device": "sim"}, {"workers": 1}, {"reproducible": True}]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("text", "axis", "shape"),
    [(GATHER, "axis 0 of X", (30, 4)), (SCATTER, "axis 0 of Y", (60, 4)), (REGION, "axis 1 of P", (60, 30))],
    ids=["gather", "scatter", "region"],
)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_the_tensor_the_place_and_the_value_are_named(
    text: str, axis: str, shape: tuple[int, ...], way: dict[str, Any], data: st.DataObject
) -> None:
    K = np.arange(180).reshape(60, 3) % 30
    row, column = data.draw(st.integers(0, 59)), data.draw(st.integers(0, 2))
    K[row, column] = wrong = data.draw(st.sampled_from((-1, 30, 31, 10**12, -(2**63) + 1)))
    program = et.compile(text)
    for _ in range(2):  # a call that was planned before fails alike
        with pytest.raises(OutOfRange) as stopped:
            program(X=np.ones(shape, np.float32), K=K, **way)
        told = str(stopped.value)
        assert f"index {wrong} at i = {row}, q = {column}, from K[{row}, {column}], is outside 0 .. 29, {axis}" in told
        assert re.match(r"line [23]: [YL]\[", told)


@pytest.mark.parametrize(
    ("text", "axis", "shape"),
    [(GATHER, "axis 0 of X", (30, 4)), (SCATTER, "axis 0 of Y", (60, 4)), (REGION, "axis 1 of P", (60, 30))],
    ids=["gather", "scatter", "region"],
)
@pytest.mark.parametrize("path", ["cuda", "steps", "large steps"])
def test_other_paths_name_them_too(
    path: str, text: str, axis: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    K = np.arange(180).reshape(60, 3) % 30
    X = np.ones(shape, np.float32)
    program = et.compile(text if path == "cuda" else "state s : f32 = 0\ns <- s + 1\n" + text)

    def call(K: Any) -> None:
        if path == "cuda":
            put(monkeypatch, "cuda", [1e-6, 5e-6, 2e-6])
            program(X=X, K=K, device="cuda")
        else:
            session.step(X=X, K=K)

    session = program.session(arena="8KiB" if path == "steps" else "8MiB") if path != "cuda" else None
    for _ in range(2):
        call(K)
    K[41, 2] = 31
    with pytest.raises(OutOfRange) as stopped:
        call(K)
    assert re.match(r"line [2-5]: [YL]\[", str(stopped.value))
    assert f"index 31 at i = 41, q = 2, from K[41, 2], is outside 0 .. 29, {axis}" in str(stopped.value)


def test_what_makes_the_index_is_named_where_it_is_a_tensor_of_the_program() -> None:
    def told(text: str, **given: Any) -> str:
        with pytest.raises(OutOfRange) as stopped:
            et.compile(text + "\noutput Y")(**given)
        return str(stopped.value).partition(": ")[2].partition(": ")[2]

    X, k, z = np.ones(9, np.float32), np.arange(7), np.full(7, 3)
    head = "input X : f32[n], k : i64[m], z : i64[m]\n"
    assert told(head + "Y[i] = X[k[i] + z[i]]", X=X, k=k, z=z) == (
        "index 9 at i = 6, from k[6] and z[6], is outside 0 .. 8, axis 0 of X"
    )
    assert "at i = 3, from k[6], is outside" in told(head + "Y[i: 4] = z[i] + X[k[2*i] + 3]", X=X, k=k, z=z)
    z[4] = 99
    nested = told(head + "Y[i] = X[z[k[i]]]", X=X, k=k, z=z)
    assert nested == "index 99 at i = 4 is outside 0 .. 8, axis 0 of X"  # z's value is a tensor without a name
    text = "input X : f32[n], s : i64\nY = X[s]"
    assert told(text, X=X, s=-2) == "index -2, from s, is outside 0 .. 8, axis 0 of X"
    assert told(text, X=X[:0], s=0) == "index 0, from s, is outside axis 0 of X: empty axis"


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["i64", "i32"])
def test_an_index_made_of_nan(kind: str, value: float) -> None:
    v = np.zeros(50, np.float32)
    v[37] = value
    program = et.compile(f"input X : f32[n], v : f32[m]\nY[i] = X[{kind}(v[i])]\noutput Y")
    with pytest.raises(OutOfRange, match=r"from v\[37\], is outside 0 .. 8, axis 0 of X; NaN and infinity become"):
        program(X=np.ones(9, np.float32), v=v)
