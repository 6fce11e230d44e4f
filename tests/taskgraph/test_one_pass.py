"""Several einsums of one stored tensor read each of its tiles once, and give what each of them gives alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import CapacityError

BY_KEY = """
dim g
input k : i32[n]
input x : f64[n]
s[k[i]: g] = sum[i] x[i]
c[k[i]: g] = sum[i] 1
m[k[i]: g] = max[i] x[i]
h[k[i]: g] = sum[i] x[i] / 2
output s, c, m, h
"""


def nbytes_read(result: et.Result) -> int:
    return int(result.report.link_bytes["disk->cpu:0"])


def stored(folder: Path, **arrays: Any) -> dict[str, str]:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return {name: str(folder / f"{name}.npy") for name in arrays}


def test_aggregations_by_key_read_the_table_once(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 300_000
    k, x = rng.integers(0, 50, n).astype(np.int32), rng.integers(-9, 9, n).astype(np.float64)
    result = et.compile(BY_KEY)(**stored(tmp_path, k=k, x=x), dims={"g": 50}, arena="1500KiB")
    assert nbytes_read(result) == k.nbytes + x.nbytes
    np.testing.assert_array_equal(result["s"], np.bincount(k, x))
    np.testing.assert_array_equal(result["c"], np.bincount(k))
    np.testing.assert_array_equal(result["h"], np.bincount(k, x) / 2)
    np.testing.assert_array_equal(result["m"], [x[k == key].max() for key in range(50)])


STATEMENTS = {
    "rows": "{0}[i] = sum[j] X[i,j]",
    "largest of rows": "{0}[i] = max[j] X[i,j] * 2",
    "columns": "{0}[j] = sum[i] X[i,j]",
    "all": "{0} = sum[i,j] X[i,j] * X[i,j]",
    "elements": "{0}[i,j] = X[i,j] + 1",
    "transposed": "{0}[j,i] = 2 * X[i,j]",
    "shifted": "{0}[i] = sum[j] X[i,j] * v[i]",
    "of another": "{0}[i] = min[j] X[i,j] - {1}[i]",
    "of all others": "{0} = sum[i] {1}[i] * v[i]",
    "product": "{0}[i,k] = sum[j] X[i,j] * X[k,j]",
}
MEANING: dict[str, Any] = {
    "rows": lambda X, v, r: X.sum(1),
    "largest of rows": lambda X, v, r: X.max(1) * 2,
    "columns": lambda X, v, r: X.sum(0),
    "all": lambda X, v, r: (X * X).sum(),
    "elements": lambda X, v, r: X + 1,
    "transposed": lambda X, v, r: 2 * X.T,
    "shifted": lambda X, v, r: X.sum(1) * v,
    "of another": lambda X, v, r: (X - r[:, None]).min(1),
    "of all others": lambda X, v, r: r @ v,
    "product": lambda X, v, r: X @ X.T,
}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(list(STATEMENTS)), min_size=1, max_size=5),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from(["8KiB", "20KiB", "1MiB"]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_drawn_statements(
    tmp_path: Path, kinds: list[str], sides: tuple[int, int], arena: str, reproducible: bool, random: Any
) -> None:
    rng = np.random.default_rng(sides)
    X, v = (rng.integers(-4, 5, shape).astype(np.float64) for shape in (sides, sides[0]))
    lines = [STATEMENTS[kind].format(f"o{n}", "r") for n, kind in enumerate(kinds)]
    names = [f"o{n}" for n in range(len(kinds))] + ["r"]
    random.shuffle(names)
    text = "\n".join(["input X : f64[a,b], v : f64[a]", "r[i] = sum[j] X[i,j]", *lines, f"output {', '.join(names)}"])
    program, files = et.compile(text), stored(tmp_path, X=X, v=v)
    try:
        result = program(**files, arena=arena, reproducible=reproducible)
    except CapacityError as refusal:
        result = program(**files, arena=refusal.needed, reproducible=reproducible)
    np.testing.assert_array_equal(result["r"], X.sum(1))
    for n, kind in enumerate(kinds):
        np.testing.assert_array_equal(result[f"o{n}"], MEANING[kind](X, v, X.sum(1)), err_msg=kind)


@pytest.mark.parametrize("arena", ["100KiB", "1MiB"])
def test_aggregations_of_a_matrix_read_it_once(tmp_path: Path, arena: str) -> None:
    kinds = ("rows", "largest of rows", "columns", "all")
    lines = [STATEMENTS[kind].format(f"o{n}", "") for n, kind in enumerate(kinds)]
    text = "\n".join(["input X : f64[a,b]", *lines, "output o0, o1, o2, o3"])
    X = np.random.default_rng(0).integers(-4, 5, (500, 400)).astype(np.float64)
    result = et.compile(text)(**stored(tmp_path, X=X), arena=arena)
    assert nbytes_read(result) == X.nbytes
    for n, kind in enumerate(kinds):
        np.testing.assert_array_equal(result[f"o{n}"], MEANING[kind](X, None, None), err_msg=kind)
