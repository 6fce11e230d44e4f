"""Hashes of einsums and regions: equal for equal values, and computed once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from einturnip.ir.dtypes import F32, F64
from einturnip.ir.region import Space
from einturnip.ir.scalar import OperandRef
from tests.kernels.regions import attention, einsum


def spaces() -> list[Space]:
    copied = einsum("ij", 1, (5, 6), ["ij"], [F32], OperandRef(0, F32), "sum")
    return [copied, attention(np.random.default_rng(0), 1, 1, 8, 9, 4, 4).region]


def test_equal_spaces_have_one_hash_and_changed_ones_their_own() -> None:
    for one, other in zip(spaces(), spaces(), strict=True):
        assert one is not other and one == other and hash(one) == hash(other)
        larger = replace(one, bounds=tuple(n + 1 for n in one.bounds))
        assert larger != one and hash(larger) == hash(replace(other, bounds=larger.bounds)) != hash(one)
        assert len({one, other, larger}) == 2


def test_a_hash_is_computed_once() -> None:
    for space in spaces():
        first = hash(space)
        object.__setattr__(space, "dtypes", (F64,) * len(space.dtypes))
        assert hash(space) == first
