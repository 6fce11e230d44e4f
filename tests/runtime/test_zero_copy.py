"""Arrays of the caller are used without a copy, but only where nobody can see a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.runtime.host import executor
from einturnip.runtime.host.zero_copy import ZeroCopyTiles

ADD = et.compile("input A : f64[i,j], B : f64[i,j]\nZ[i,j] = A[i,j] + 2 * B[i,j]\noutput Z\n")
PRODUCT = et.compile("input A : f64[i,k], B : f64[k,j]\nZ[i,j] = A[i,k] * B[k,j]\noutput Z\n")
THREE = et.compile(
    "input A : f64[i,j], B : f64[i,j]\n"
    "T[i,j] = A[i,j] * B[i,j]\nS[j,i] = T[i,j]\nm[i] = max[j] T[i,j]\noutput S, T, m\n"
)
N = 600


def numbers(*shape: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape) % 11 - 5


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the transfers that copied."""
    kinds: list[str] = []

    class Watched(ZeroCopyTiles):
        def needs_no_copy(self, op: Any) -> bool:
            found = super().needs_no_copy(op)
            if not found:
                kinds.append(op.kind.name)
            return found

    monkeypatch.setattr(executor, "ZeroCopyTiles", Watched)
    return kinds


def test_whole_arrays_are_neither_copied_in_nor_out(copied: list[str]) -> None:
    a, b = numbers(N, N), numbers(N, N)[::-1].copy()
    result = ADD(A=a, B=b)
    assert np.array_equal(result["Z"], a + 2 * b)
    assert copied == []
    assert result.report.link_bytes == {"disk->cpu:0": 2 * a.nbytes, "cpu:0->disk": a.nbytes}


def test_what_a_kernel_could_not_read_in_place_is_copied(copied: list[str]) -> None:
    a, b = numbers(N, N), numbers(N, N)
    for x in (a.T, a[:, ::-1], a.astype(">f8"), np.broadcast_to(a[:1], a.shape), a.repeat(2, 1)[:, ::2]):
        copied.clear()
        assert np.array_equal(ADD(A=x, B=b)["Z"], x + 2 * b)
        assert "LOAD" in copied and "STORE" not in copied


def test_a_window_of_a_larger_array_is_read_in_place(copied: list[str]) -> None:
    a, b = numbers(N, 2 * N)[:, 7 : 7 + N], numbers(N, N)
    out = np.full((2 * N, 2 * N), -1.0)
    ADD(A=a, B=b, out={"Z": out[3 : 3 + N, 5 : 5 + N]})
    assert np.array_equal(out[3 : 3 + N, 5 : 5 + N], a + 2 * b)
    assert out.sum() == (a + 2 * b).sum() - (out.size - a.size) and copied == []


def test_a_result_over_an_input_is_written_when_it_is_read_no_more(copied: list[str]) -> None:
    a, b = numbers(N, N), numbers(N, N)
    want = a @ b
    PRODUCT(A=a, B=b, out={"Z": a}, memory="64MiB")
    assert np.array_equal(a, want) and "STORE" in copied


def test_accumulators_stay_in_the_arena_until_they_are_whole() -> None:
    a, b = numbers(N, N), numbers(N, N)
    out = np.full((N, N), np.nan)
    PRODUCT(A=a, B=b, out={"Z": out}, arena="2MiB")
    assert np.array_equal(out, a @ b)


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    arena=st.sampled_from([None, "1MiB", "64KiB"]),
    shift=st.integers(0, 3),
    flip=st.booleans(),
)
def test_any_window_gives_what_a_copy_gives(rows: int, columns: int, arena: Any, shift: int, flip: bool) -> None:
    a = numbers(rows + 4, columns + 4)[shift : shift + rows, shift : shift + columns]
    b = numbers(columns, rows).T if flip else numbers(rows, columns)
    out = np.zeros((rows + 4, columns + 4))[shift : shift + rows, :columns]
    found = THREE(A=a, B=b, out={"T": out}, arena=arena)
    assert np.array_equal(out, a * b) and np.array_equal(found["S"], (a * b).T)
    assert np.array_equal(found["m"], (a * b).max(1))
