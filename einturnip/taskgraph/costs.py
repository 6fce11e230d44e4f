"""What kernel tasks cost: workspace, seconds, operations; worked out once for all tiles that are alike."""

from __future__ import annotations

from einturnip.cost.machine import Machine
from einturnip.ir.einsum import Box
from einturnip.ir.region import Region, Space
from einturnip.kernels.select import Mode, compile_kernel, planned_workspace_nbytes
from einturnip.tiling.types import Partitioning

Costs = tuple[int, float, int]


class KernelCosts:
    """Costs by einsum, mode and extents and, of a region with a mask, by what the mask says of the tile."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[tuple[object, ...], Costs] = {}
        self._tiles: dict[tuple[object, ...], Costs] = {}
        self._ragged: dict[int, list[tuple[int, int]]] = {}

    def of_tile(self, node: int, e: Space, mode: Mode, part: Partitioning, key: tuple[int, ...]) -> Costs:
        """The same for tile ``key`` of a node, cut as ``part`` says."""
        ragged = self._ragged.get(node)
        if ragged is None:
            ragged = self._ragged[node] = part.ragged
        # Of an einsum, tiles that end alike cost alike; of a region it also counts where the mask's edge runs.
        alike = (node, mode, *[key[p] == last for p, last in ragged])
        found = self._tiles.get(alike)
        if found is None:
            found = self.of(e, mode, part.box(key))
            if not isinstance(e, Region):
                self._tiles[alike] = found
        return found

    def of(self, e: Space, mode: Mode, box: Box) -> Costs:
        """Workspace in bytes, seconds, operations of the kernel of one tile."""
        extents = tuple([hi - lo for lo, hi in box])
        found = self._known.get((id(e), mode, extents))
        if found is not None:
            return found
        if not isinstance(e, Region):
            return self._priced((id(e), mode, extents), e, mode, box)
        from einturnip.kernels.fused.region_kernel import RegionKernel

        kernel = compile_kernel(e, extents, mode)
        if not isinstance(kernel, RegionKernel) or not kernel.mask.conditions:
            return self._priced((id(e), mode, extents), e, mode, box)
        held = kernel.mask.evaluate(box)
        if None in held:  # the mask's edge runs through the tile: its blocks are told apart one by one
            return self._priced((id(e), mode, box), e, mode, box)
        return self._priced((id(e), mode, extents, held), e, mode, box)

    def _priced(self, key: tuple[object, ...], e: Space, mode: Mode, box: Box) -> Costs:
        found = self._known.get(key)
        if found is None:
            from einturnip.cost.kernel_time import kernel_seconds

            extents = tuple([hi - lo for lo, hi in box])
            kernel = compile_kernel(e, extents, mode)
            seconds = kernel_seconds(e, extents, self.machine, mode, [lo for lo, _ in box])
            found = self._known[key] = self._workspace(e, mode, extents), seconds, kernel.flops
        return found

    def _workspace(self, e: Space, mode: Mode, extents: tuple[int, ...]) -> int:
        """Bytes of workspace on the machine's device; a GPU's kernels align theirs to four of the arena's lines."""
        if not self.machine.compute.startswith("cuda"):
            return planned_workspace_nbytes(e, extents, mode, self.machine.compiled)
        from einturnip.kernels.cuda.generate import generate

        nbytes = generate(e, mode).workspace_nbytes(extents)
        return nbytes + 256 if nbytes else 0
