"""Plans a program with equal layers for several sites, each layer once.

A plan for many sites has an op for each kernel call and for each value that moves. If all layers are equal, so are
their parts of the plan. ``tiling.graph_segments`` cuts such a program into segments; each is planned as a program of
its own. Tensors that one segment passes to another stay on the sites that computed them, from which other sites receive
the parts that they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from einturnip.api.jobs import Missing, complete, tiers
from einturnip.compiler import Options, make_plan
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.planner.planner import PlannedProgram
from einturnip.report.segment_traffic import SegmentPlan, joined_traffic, value_nbytes
from einturnip.report.sites import SiteTraffic
from einturnip.runtime.scheduler.report import Prediction, joined_prediction
from einturnip.storage.generated import AbsentSource
from einturnip.storage.types import Array, Source
from einturnip.tiling.graph_segments import GraphSegment, segments
from einturnip.tuning.search import SEGMENTED_CALLS


@dataclass(frozen=True)
class PlannedSegments:
    """The plans of the segments of a program, in order. ``name``: of the program."""

    name: str
    plans: tuple[tuple[GraphSegment, PlannedProgram], ...]

    @cached_property
    def traffic(self) -> SiteTraffic:
        """The traffic of all layers."""
        return joined_traffic(self._parts, self.plans[0][1].machine)

    @property
    def prediction(self) -> Prediction:
        """The time and bytes of all segments, one after the other, without tensors that stay on sites."""
        joined = joined_prediction([(planned.prediction, segment.times) for segment, planned in self.plans])
        kept = value_nbytes(self._parts)
        links = {name: n - kept.get(name, 0) for name, n in joined.link_bytes.items()}
        return Prediction(joined.seconds, joined.flops, joined.peak_nbytes, links, {})

    @property
    def _parts(self) -> list[SegmentPlan]:
        return [SegmentPlan(segment, planned.memgraph) for segment, planned in self.plans]


def equal_layers(graph: EinGraph, sites: int) -> tuple[GraphSegment, ...] | None:
    """Return the segments of a program with equal layers and many calls; None for other programs."""
    computed = sum(not isinstance(node, InputNode) for node in graph.nodes)
    if sites < 2 or computed * sites < SEGMENTED_CALLS:
        return None
    found = segments(graph)
    return found if len(found) > 1 else None


def plan_segments(
    parts: Sequence[GraphSegment],
    sources: Mapping[str, Source],
    missing: Missing,
    targets: Mapping[str, str | Array | None],
    options: Options,
) -> PlannedSegments:
    """Plan each segment.

    Raises:
        CapacityError: a segment does not fit.
    """
    plans = []
    for part in parts:
        nodes = [node for node in part.graph.nodes if isinstance(node, InputNode)]
        values = {n.name: AbsentSource(n.name, n.shape, n.dtype) for n in nodes if n.name in part.values}
        own = {n.name: sources[n.name] for n in nodes if n.name in sources and n.name not in part.values}
        names = {name for name, _ in part.graph.outputs}
        written = tiers({name: target for name, target in targets.items() if name in names})
        plans.append((part, make_plan(part.graph, complete(part.graph, own | values, missing), written, options)))
    return PlannedSegments(parts[0].graph.program, tuple(plans))
