"""How tiles of inputs reach sites: from their files, or from other sites."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import MemGraph, OpKind


@dataclass(frozen=True, slots=True)
class InputTraffic:
    """Bytes of an input. ``node``: its number in the graph.

    ``read``: by the first site that reads a tile; ``read_again``: by further sites; ``sent``: between sites.
    """

    node: int
    name: str
    read: int
    read_again: int
    sent: int

    def repeated(self, times: int, before: InputTraffic | None = None) -> InputTraffic:
        """Return the traffic of plans that are made ``times`` times, after those with the traffic ``before``."""
        read, again, sent = (0, 0, 0) if before is None else (before.read, before.read_again, before.sent)
        read, again, sent = read + times * self.read, again + times * self.read_again, sent + times * self.sent
        return replace(self, read=read, read_again=again, sent=sent)


def input_traffic(graph: MemGraph) -> tuple[InputTraffic, ...]:
    """Return the traffic of each input. A tile that a site reads again after it was evicted counts once."""
    tasks, between = graph.taskgraph, graph.between_devices()

    def values(ops: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        found: np.ndarray[tuple[int], np.dtype[np.int64]] = graph.all_unversioned(graph.write[graph.write_ptr[ops], 3])
        return found

    loaded = values(np.flatnonzero(graph.kind == OpKind.LOAD))
    moved = values(np.flatnonzero(between))
    first = np.zeros(len(loaded), bool)
    original = tasks.original[loaded] if len(tasks.original) else loaded
    first[np.unique(original, return_index=True)[1]] = True

    def nbytes(of: np.ndarray[tuple[int], np.dtype[np.int64]], node: int) -> int:
        return int(tasks.value_nbytes[of[tasks.value_node[of] == node]].sum())

    return tuple(
        InputTraffic(i, node.name, nbytes(loaded[first], i), nbytes(loaded[~first], i), nbytes(moved, i))
        for i, node in enumerate(tasks.decomposition.graph.nodes)
        if isinstance(node, InputNode)
    )
