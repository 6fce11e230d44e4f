"""An object file's name identifies its code, and sizes with the same code share it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.ir.einsum import Einsum
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.code_cache import canonical_text
from einturnip.kernels.llvm.kernel_spec import kernel_spec
from tests.kernels.test_native_kernels import EQUATIONS, FLOATING, einsum_of
from tests.kernels.test_rows import PROGRAMS, native, region_of


def resized(einsum: Einsum, sizes: list[int]) -> Einsum:
    """The einsum with other sizes of its labels, where its operands are read by plain labels alone."""
    if not einsum.plain:
        return einsum
    return replace(einsum, bounds=tuple(sizes[: len(einsum.bounds)]), shapes=())


@given(
    equation=st.sampled_from([*EQUATIONS, *FLOATING]),
    dtype=st.sampled_from(["f32", "f64"]),
    sizes=st.lists(st.lists(st.integers(1, 20000), min_size=4, max_size=4), min_size=2, max_size=2),
    mode=st.sampled_from(["full", "accumulate"]),
)
def test_kernels_of_one_key_have_one_code(equation: str, dtype: str, sizes: list[list[int]], mode: Any) -> None:
    einsum = einsum_of(equation, dtype)[0]
    specs = [kernel_spec(resized(einsum, own), mode) for own in sizes if mode == "full" or einsum.aggregation]
    first, second = [spec for spec in specs if spec is not None][:2] if None not in specs and specs else (None, None)
    if first is not None and second is not None:
        same = code_cache._key(first) == code_cache._key(second)
        assert not same or code_cache.llvm_ir(first) == code_cache.llvm_ir(second)


@pytest.mark.parametrize("equation", ["Z[n,p] = sum[m] (X[n,m] - Y[p,m])^2", "Z[n] = sum[m] abs(X[n,m])"])
def test_sizes_with_the_same_blocks_share_code(equation: str) -> None:
    einsum = einsum_of(equation, "f32")[0]
    keys = {
        code_cache._key(spec) for n in (3000, 3500, 4000) if (spec := kernel_spec(resized(einsum, [n] * 4), "full"))
    }
    assert len(keys) == 1


def test_the_count_of_a_mean_is_part_of_its_key() -> None:
    einsum = einsum_of("Z[n] = mean[m] X[n,m]", "f32")[0]
    keys = {code_cache._key(spec) for m in (999, 1000) if (spec := kernel_spec(resized(einsum, [50, m]), "full"))}
    assert len(keys) == 2


@pytest.mark.usefixtures("own_cache")
def test_rows_of_other_sizes_share_code() -> None:
    keys = set()
    for rows in (21, 30):
        row_spec = native(region_of(PROGRAMS["rmsnorm"], rows, 83)[0]).run.row_spec
        keys.add(code_cache._key(row_spec))
    assert len(keys) == 1


def test_keys_are_the_same_in_every_process() -> None:
    script = (
        "from tests.kernels.test_native_kernels import einsum_of\n"
        "from einturnip.kernels.llvm import code_cache, kernel_spec\n"
        "print(code_cache._key(kernel_spec.kernel_spec(einsum_of('Z[n,m] = exp(X[n,m]) * r[n]', 'f32')[0], 'full')))"
    )
    printed = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(printed) == 1 and printed != {""}


@pytest.mark.parametrize(
    ("a", "b"), [(1, 1.0), (1, True), ((1, 2), ((1,), 2)), ("1", b"1"), (0.0, -0.0), (("a,b",), ("a", "b")), ((), None)]
)
def test_unlike_values_have_unlike_texts(a: object, b: object) -> None:
    assert canonical_text(a) != canonical_text(b)


def test_sets_have_one_order() -> None:
    assert canonical_text(frozenset({1, 64, 2})) == canonical_text(frozenset({2, 64, 1}))


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="a object has no canonical text"):
        canonical_text((1, object()))
