"""Regions: einsums that run together, tile by tile, so that intermediates never leave the kernel.

The model is a streaming softmax: scores, their running maximum, the sum of exp(score - maximum) and the product with
the values are four einsums over the same streamed label. Each tile of scores is computed, used and discarded. When the
maximum increases, the sums so far are multiplied by exp(old maximum - new maximum).

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
    """One einsum of a region; ``labels`` maps its labels to the region's.

    ``operands``: a slot of the region, or ``~k`` for the value of the earlier step k.
    """

    einsum: Einsum
    labels: tuple[int, ...]
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rescale:
    """Correction of the partial sum ``step`` when the running extremum ``of`` changes from a to b.

    The sum is multiplied by exp(coefficient * (b - a)): its terms have the common factor exp(coefficient * m), where m
    is the value of ``of``. While m is infinite, the sum has no terms.
    """

    step: int
    of: int
    coefficient: float


@dataclass(frozen=True, slots=True)
class Shift:
    """Correction of the partial sum ``step`` when the mean ``of`` n values changes from a to b.

    It adds coefficient * n (b - a)^2. Its terms are coefficient * (x - m)^2, where m is the value of ``of`` and x the
    values of that mean, over the same labels. The mean's state also counts its values.
    """

    step: int
    of: int
    coefficient: float


@dataclass(frozen=True)
class Region(TileSpace):
    """Steps over one label space: output labels, then ``n_streamed`` streamed ones, then inner ones.

    Step classes:
    - *tiled*: its output has a streamed label; its value exists for one tile only, inside the kernel.
    - *carried*: it aggregates the streamed labels; its state is a component of the region's state.
    - *final*: all others; they run after the last tile. The last step is the output. Final steps read only values of
      steps, and no label as a number, so that a state suffices to finalize.

    Without streamed labels it is a region *of rows*: each step, including aggregations, runs over the whole tile, one
    after another, and output labels that some step aggregates are never tiled.

    Steps read partial values of carried steps before them; ``rescales`` and ``shifts`` correct for later changes. Inner
    labels are bound inside single steps and are never tiled, nor is a streamed label that only some carried steps bind.
    ``untiled`` are output labels that should stay whole too: a tiled or carried step lacks them, and would be
    recomputed for each of their tiles.
    """

    __hash__ = TileSpace.__hash__

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
        """Positions of the streamed labels, which may be tiled."""
        return range(self.n_out, self.n_out + self.n_streamed)

    @property
    def of_rows(self) -> bool:
        """True if steps run one after another on whole tiles, along rows that are not tiled."""
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
        """Labels never tiled: inner ones, those along rows, streamed ones not bound by every carried step."""
        inner = frozenset(range(self.n_out + self.n_streamed, len(self.labels)))
        bound = [{s.labels[p] for p in s.einsum.aggregated} for s in self.steps]
        if self.of_rows:
            return inner.union(*bound)
        within = {p for k in self.tiled for p in bound[k]}
        return inner | {p for p in self.aggregated if p in within or not all(p in bound[k] for k in self.carried)}

    def required(self, roots: Sequence[int]) -> frozenset[int]:
        """Return the roots and the steps they depend on; dependencies of carried steps are not followed."""
        found, work = set(roots), list(roots)
        while work:
            for o in self.steps[work.pop()].operands:
                if o < 0 and ~o not in found:
                    found.add(~o)
                    if ~o not in self.carried:
                        work.append(~o)
        return frozenset(found)

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
