"""Replays the plan of a recorded run: its choices are given, and nothing is searched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from einturnip.core.errors import BindError, CapacityError
from einturnip.core.process_resources import resident_nbytes
from einturnip.core.units import format_minimum, format_size
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.types import MemGraph
from einturnip.planner.budget import overhead_nbytes, size_of
from einturnip.runtime.scheduler.replay import digest
from einturnip.tiling.equivalence import EquivalenceClasses
from einturnip.tiling.label_classes import LabelClasses, label_classes
from einturnip.tiling.search import Tiling, kernel_calls
from einturnip.tiling.types import Decomposition

if TYPE_CHECKING:
    from einturnip.tiling.sites import Sites


@dataclass(frozen=True)
class ReplayedChoices:
    """The choices of a recorded plan, and the schedule of its run.

    ``source``: the recording, for messages; ``limit``: the memory that rewrites assumed; ``tiles``: by label class;
    ``plan``: the digest of the memory graph. Units: bytes.
    """

    source: str
    limit: int | None
    arena: int
    tiles: tuple[int, ...]
    fused: bool
    compiled: bool
    plan: str
    ops: int
    events: tuple[int, ...] = field(repr=False)

    def tiling(self, graph: EquivalenceClasses) -> Tiling:
        """Return the tiling of the recorded run.

        Raises:
            BindError: the graph is different.
        """
        if len(self.tiles) != len(graph.classes.bounds):
            raise self._mismatch("its labels differ")
        tiling = tiling_from_extents(graph, self.tiles)
        if tiling.kernel_calls > self.ops:
            raise self._mismatch(f"{self.ops:,} ops there, {tiling.kernel_calls:,} kernel calls here")
        return tiling

    def require(self, graph: MemGraph, memory: int | None, workers: int) -> None:
        """Check that the plan is the recorded one, and that its arena fits ``memory``.

        Raises:
            BindError: it is different. CapacityError: it does not fit.
        """
        if digest(graph) != self.plan:
            raise self._mismatch(f"{self.ops:,} ops there, {len(graph):,} here")
        plan = size_of(graph.taskgraph, ops=len(graph))
        needed = overhead_nbytes(resident_nbytes(), workers, plan) + graph.peak_nbytes
        if memory is not None and memory < needed:
            arena = format_size(graph.peak_nbytes)
            raise CapacityError(
                f"the recorded run does not fit in {format_size(memory)}: it uses {arena} of arena; "
                f"the minimum is {format_minimum(needed)}",
                needed,
            )

    def _mismatch(self, why: str) -> BindError:
        return BindError(
            f"{self.source} is a recording of another plan ({why}). help: replay it with the program, the sizes, the "
            "kinds of files, the version and the calibration of this machine that it was recorded with"
        )


def tiling_from_extents(graph: EquivalenceClasses, tiles: tuple[int, ...]) -> Tiling:
    """Return the tiling of a graph with these tile extents of its label classes."""
    working_set = max((graph.working_set_nbytes(group, tiles) for group in graph.groups), default=0)
    return Tiling(tiles, working_set, kernel_calls(graph, tiles))


def classes_for(
    graph: EinGraph, devices: int, rates: Sequence[float], ordered: bool
) -> tuple[LabelClasses, Sites | None]:
    """Return the label classes that a plan's tiles are stated by, and the division among several devices.

    ``rates``: of the devices' kernels; () if they are equal. ``ordered``: tiles must not depend on the devices, so that
    states are summed in one order.
    """
    classes = label_classes(graph)
    if devices == 1:
        return classes, None
    from einturnip.tiling.site_tiles import align
    from einturnip.tiling.sites import Sites

    sites = Sites(graph, devices, rates)
    return classes if ordered else align(classes, sites), sites


def class_tiles(d: Decomposition, classes: LabelClasses) -> tuple[int, ...]:
    """Return the tile extents of a decomposition's label classes."""
    tiles = [0] * len(classes.bounds)
    scaled = [1] * len(classes.bounds)
    for i, part in enumerate(d.partitionings):
        ratios = classes.ratios.get(i) or (1,) * len(part.tiles)
        for c, tile, ratio in zip(classes.of[i], part.tiles, ratios, strict=True):
            if ratio == 1:
                tiles[c] = max(tiles[c], tile)
            else:
                scaled[c] = max(scaled[c], math.ceil(tile / ratio))
    # A class that is divided among devices may be left without a label of its full length.
    return tuple(tile or other for tile, other in zip(tiles, scaled, strict=True))
