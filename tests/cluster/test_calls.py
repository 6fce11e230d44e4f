"""Calls from Python that run on workers: einsum with NumPy's arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import BindError, CapacityError, DTypeError

pytestmark = pytest.mark.timeout(120)


def drawn(*shape: int, dtype: Any = float) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(dtype)


def test_einsum_has_the_values_of_numpy(client: Any, tmp_path: Path) -> None:
    a, b = drawn(40, 30), drawn(30, 50)
    np.save(tmp_path / "b.npy", b)
    cases: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("ij,jk->ik", a, b), {}),
        (("ij,jk->ik", a, b), {"order": "F", "dtype": np.complex64, "casting": "same_kind"}),
        (("ij,ij->", a, a), {}),
        ((a, [0, 1], b, [1, 2], [2, 0]), {}),
    ]
    for operands, options in cases:
        result, expected = et.einsum(*operands, client=client, **options), np.einsum(*operands, **options)
        np.testing.assert_array_equal(result, expected)
        assert (type(result), result.dtype) == (type(expected), expected.dtype)
        assert result.ndim < 2 or result.flags.f_contiguous == (options.get("order") == "F")
    np.testing.assert_array_equal(et.contract("ij,jk->ik", a, str(tmp_path / "b.npy"), client=client), a @ b)


def test_einsum_writes_to_arrays_and_files(client: Any, tmp_path: Path) -> None:
    a = drawn(40, 30)
    wide, narrow = np.zeros(40), np.zeros(40, np.float32)
    assert et.einsum("ij->i", a, out=wide, client=client) is wide
    assert et.einsum("ij->i", a, out=narrow, casting="same_kind", client=client) is narrow
    np.testing.assert_array_equal(wide, a.sum(1))
    np.testing.assert_array_equal(narrow, a.sum(1))
    file = et.einsum("ij->i", a, out=tmp_path / "s.npy", client=client)
    np.testing.assert_array_equal(np.asarray(file), a.sum(1))


def test_errors_of_einsum_on_workers(client: Any, tmp_path: Path) -> None:
    a = drawn(40, 30)
    with pytest.raises(BindError, match="40"):
        et.einsum("ij,jk->ik", a, a, client=client)
    with pytest.raises(DTypeError, match="casting"):
        et.einsum("ij->i", a, dtype="f4", client=client)
    with pytest.raises(CapacityError, match="of the worker tcp://"):
        et.einsum("ij,jk->ik", a, a.T, memory="1MiB", client=client)
    with pytest.raises(BindError, match=r"no-such\.npy"):
        et.einsum("ij->i", str(tmp_path / "no-such.npy"), client=client)
    assert os.listdir(tmp_path) == []
