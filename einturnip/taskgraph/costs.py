"""Costs of kernel tasks: workspace, seconds, operations; computed once for equivalent tiles."""

from __future__ import annotations

from einturnip.cost.machine import Machine
from einturnip.devices.kind import kinds_of
from einturnip.ir.einsum import Box
from einturnip.ir.region import Region, Space
from einturnip.kernels.mask import LabelMask, label_mask
from einturnip.kernels.protocol import Mode
from einturnip.tiling.types import Partitioning

Costs = tuple[int, float, int]


class KernelCosts:
    """Costs by einsum, mode and extents; for a region with a mask also by the mask's value on the tile."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._kinds = kinds_of(machine.compute)
        self._known: dict[tuple[object, ...], Costs] = {}
        self._tiles: dict[tuple[object, ...], Costs] = {}
        self._masks: dict[int, LabelMask] = {}
        self._ragged: dict[int, list[tuple[int, int]]] = {}

    def of_tile(self, node: int, e: Space, mode: Mode, part: Partitioning, key: tuple[int, ...]) -> Costs:
        """Return the costs of tile ``key`` of a node with partitioning ``part``."""
        ragged = self._ragged.get(node)
        if ragged is None:
            ragged = self._ragged[node] = part.ragged
        # Tiles of an einsum with the same extents have equal costs; those of a region also depend on the mask.
        same_cost = (node, mode, *[key[p] == last for p, last in ragged])
        found = self._tiles.get(same_cost)
        if found is None:
            found = self.of(e, mode, part.box(key))
            if not isinstance(e, Region):
                self._tiles[same_cost] = found
        return found

    def of(self, e: Space, mode: Mode, box: Box) -> Costs:
        """Return workspace in bytes, seconds and operations of the kernel of one tile."""
        extents = tuple([hi - lo for lo, hi in box])
        found = self._known.get((id(e), mode, extents))
        if found is not None:
            return found
        if not isinstance(e, Region) or mode == "combine":
            return self._priced((id(e), mode, extents), e, mode, box)
        mask = self._masks.get(id(e))
        if mask is None:
            mask = self._masks[id(e)] = label_mask(e)
        if not mask.conditions:
            return self._priced((id(e), mode, extents), e, mode, box)
        condition_values = mask.evaluate(box)
        if None in condition_values:  # the mask's edge crosses the tile, so the cost depends on its place
            return self._priced((id(e), mode, box), e, mode, box)
        return self._priced((id(e), mode, extents, condition_values), e, mode, box)

    def _priced(self, key: tuple[object, ...], e: Space, mode: Mode, box: Box) -> Costs:
        found = self._known.get(key)
        if found is None:
            from einturnip.cost.kernel_time import kernel_seconds
            from einturnip.cost.kernel_work import kernel_flops

            extents = tuple([hi - lo for lo, hi in box])
            seconds = kernel_seconds(e, extents, self.machine, mode, [lo for lo, _ in box])
            workspace = max(kind.workspace_nbytes(e, extents, mode, self.machine.compiled) for kind in self._kinds)
            found = self._known[key] = workspace, seconds, kernel_flops(e, extents, mode)
        return found
