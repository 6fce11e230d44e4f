"""Regions: einsums that run together, tile by tile, so that what passes between them never leaves the kernel.

A streaming softmax is the model: scores, their running maximum, the sum of exp(score - maximum) and the product with
the values are four einsums over the same streamed label. Each tile of scores is made, used and forgotten, and when the
maximum moves, the sums so far are multiplied by exp(old maximum - new maximum).

Source of that law: Milakov and Gimelshein, Online normalizer calculation for softmax (arXiv 1805.02867); Rabe and
Staats, Self-attention does not need O(n^2) memory (arXiv 2112.05682).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Access, Einsum, Key, TileSpace


@dataclass(frozen=True, slots=True)
class RegionStep:
    """One einsum of a region. ``labels`` are the region's label for each of its own.

    ``operands``: a slot of the region, or ``~k`` for the value of the earlier step k.
    """

    einsum: Einsum
    labels: tuple[int, ...]
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rescale:
    """When step ``of``, a maximum or minimum so far, moves from a to b, the sum of step ``step`` so far is multiplied.

    The factor is exp(coefficient * (b - a)): the terms of the sum hold exp(coefficient * m) as a factor, with m the
    value of ``of``, and a sum of products lets a common factor out. An m that is infinite has no term yet.
    """

    step: int
    of: int
    coefficient: float


@dataclass(frozen=True, slots=True)
class Shift:
    """When step ``of``, the mean of n values so far, moves from a to b, step ``step`` gains coefficient n (b - a)^2.

    Its terms are coefficient * (x - m)^2, with m the value of ``of`` and x what that is the mean of, over the same
    labels. The mean's state counts its values.
    """

    step: int
    of: int
    coefficient: float


@dataclass(frozen=True)
class Region(TileSpace):
    """Steps over one label space: the output's labels, then the ``n_streamed`` streamed ones, then inner ones.

    A step whose output has a streamed label is *tiled*: its value exists for one tile, inside the kernel. One that
    aggregates the streamed labels is *carried*: its state (of its einsum's aggregation) is a component of the region's.
    The rest, which see no streamed label, are *final* and run when every tile has been seen; the last is the output.
    They read values of steps alone, and no label as a number, so that a state is all it takes to finish.
    Without a streamed label it is a region *of rows*: each step, a fold too, is done as a whole over what a tile has,
    one after the other, and labels of the output that some step folds are never cut.
    Steps see the carried ones before them as they are so far, which ``rescales`` and ``shifts`` make up for. Inner
    labels are bound inside single steps and are never cut; nor is a streamed label bound by only some of the carried
    steps. ``untiled`` are labels of the output that should not be cut either: a tiled or carried step lacks them, and
    would be computed again for each of their tiles.
    """

    labels: tuple[str, ...]
    bounds: tuple[int, ...]
    n_out: int
    n_streamed: int
    accesses: tuple[Access, ...]
    dtypes: tuple[DType, ...]
    steps: tuple[RegionStep, ...]
    rescales: tuple[Rescale, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    keys: tuple[Key, ...] = ()
    untiled: tuple[int, ...] = ()
    shifts: tuple[Shift, ...] = ()

    @property
    def dtype(self) -> DType:
        """Element type of the output."""
        return self.steps[-1].einsum.dtype

    @property
    def aggregated(self) -> range:
        """Positions of the streamed labels, which tiles may cut."""
        return range(self.n_out, self.n_out + self.n_streamed)

    @property
    def of_rows(self) -> bool:
        """Whether steps are done as a whole, one after the other, along rows that no tile cuts."""
        return not self.n_streamed

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """Numbers of the carried steps."""
        streamed = set(self.aggregated)
        return tuple(
            k for k, step in enumerate(self.steps) if streamed & {step.labels[p] for p in step.einsum.aggregated}
        )

    @cached_property
    def tiled(self) -> tuple[int, ...]:
        """Numbers of the tiled steps."""
        streamed = set(self.aggregated)
        return tuple(k for k, step in enumerate(self.steps) if streamed & set(step.labels[: step.einsum.n_out]))

    @cached_property
    def whole(self) -> frozenset[int]:
        """Labels that are never cut: inner ones, those along rows, streamed ones that not every carried step folds."""
        inner = frozenset(range(self.n_out + self.n_streamed, len(self.labels)))
        bound = [{s.labels[p] for p in s.einsum.aggregated} for s in self.steps]
        if self.of_rows:
            return inner.union(*bound)
        within = {p for k in self.tiled for p in bound[k]}
        return inner | {p for p in self.aggregated if p in within or not all(p in bound[k] for k in self.carried)}

    @property
    def state_dtypes(self) -> tuple[DType, ...]:
        """Element types of the state's components."""
        return tuple(dtype for k in self.carried for dtype in self.steps[k].einsum.state_dtypes)

    def components(self, extents: Sequence[int]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        """Shape and dtype of each component of the state of a tile of these extents."""
        return tuple(
            component
            for k in self.carried
            for component in self.steps[k].einsum.components([extents[p] for p in self.steps[k].labels])
        )


Space: TypeAlias = Einsum | Region
