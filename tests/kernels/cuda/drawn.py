"""Einsums drawn at random, each cut into tiles, with what it means: one list, so that all compile together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region

from ..test_indices import LANGUAGE, indexed
from ..test_kernels import einsums, tensor
from ..test_keys import keyed

Array = np.ndarray
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Drawn:
    """An einsum, its operands, and tiles: for each of the output the boxes to fold, in an order of no meaning."""

    einsum: Einsum
    operands: tuple[Array, ...]
    tiles: tuple[tuple[Box, tuple[Box, ...]], ...]


def _cut(data: st.DataObject, einsum: Einsum) -> Iterator[tuple[Box, tuple[Box, ...]]]:
    ends = [sorted({0, n, data.draw(st.integers(0, n))}) for n in einsum.bounds]
    ranges = [list(itertools.pairwise(c)) or [(0, 0)] for c in ends]
    for kept in itertools.product(*ranges[: einsum.n_out]):
        folded = data.draw(st.permutations(list(itertools.product(*ranges[einsum.n_out :]))))
        yield kept, tuple((*kept, *box) for box in folded)


SOURCES: dict[str, Callable[[], st.SearchStrategy[Einsum]]] = {
    "plain": einsums,
    "indexed": lambda: indexed((None, *LANGUAGE)),
    "gathers": lambda: keyed(False),
    "scatters": lambda: keyed(True),
}


def drawn(source: str, count: int) -> list[Drawn]:
    """``count`` examples, the same each time."""
    found: dict[str, Drawn] = {}

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        einsum = data.draw(SOURCES[source]())
        operands = tuple(tensor(data.draw, einsum.operand_shape(s), d) for s, d in enumerate(einsum.dtypes))
        found.setdefault(repr(einsum), Drawn(einsum, operands, tuple(_cut(data, einsum))))

    draw()
    return list(found.values())


def parts(space: Einsum | Region, operands: Sequence[Array], box: Box) -> list[Array]:
    """Each operand's part for a box of the label space."""
    return [x[(*(slice(*r) for r in space.operand_box(s, box)), ...)] for s, x in enumerate(operands)]


def close(found: Array, expected: Array, tolerance: float = 1e-5) -> None:
    """Equal, or nearly where they are no integers."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    else:
        a, b = found.astype(np.complex128), expected.astype(np.complex128)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
