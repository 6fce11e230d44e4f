"""Checks the invariants of a region: step classes, operands, and the rescales of partial values."""

from __future__ import annotations

from einturnip.core.errors import InternalError
from einturnip.ir.einsum import Access, labels_read, relabelled
from einturnip.ir.region import Region
from einturnip.ir.scalar import labels_of


def check_region(where: str, region: Region) -> None:
    """Check labels, operands and classes of the steps, and the rescales that their dependencies require.

    Raises:
        InternalError: an invariant is broken.
    """
    _require(bool(region.steps), f"{where}: a region without steps")
    _require(bool(region.carried) or region.of_rows, f"{where}: a region without carried steps")
    _require(region.n_out + region.n_streamed <= len(region.labels), f"{where}: n_streamed")
    last = region.steps[-1]
    out = last.labels[: last.einsum.n_out]
    _require(out == tuple(range(region.n_out)), f"{where}: the last step has labels {out}")
    read: set[int] = set()
    for k, step in enumerate(region.steps):
        name = f"{where}, step {k}"
        _require(len(step.labels) == len(step.einsum.labels) == len(set(step.labels)), f"{name}: labels")
        bounds = tuple(region.bounds[p] for p in step.labels)
        _require(bounds == step.einsum.bounds, f"{name}: bounds {bounds} and {step.einsum.bounds}")
        _check_operands(name, region, k)
        _check_class(name, region, k)
        read.update(step.operands)
    _require(read >= set(range(len(region.accesses))), f"{where}: slots that no step reads")
    unread = [k for k in range(len(region.steps) - 1) if ~k not in read]
    _require(not unread, f"{where}: no step reads steps {unread}")
    _check_rescales(where, region)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InternalError(message)


def _check_operands(name: str, region: Region, k: int) -> None:
    """Check that the operands of a step have the type, shape and labels that its einsum declares."""
    step = region.steps[k]
    _require(len(step.operands) == len(step.einsum.accesses), f"{name}: slots and operands differ")
    for slot, source in enumerate(step.operands):
        access: Access = tuple(relabelled(index, step.labels) for index in step.einsum.accesses[slot])
        if source >= 0:
            _require(source < len(region.accesses), f"{name}: no slot {source}")
            shapes = region.operand_shape(source), step.einsum.operand_shape(slot)
            dtype, expected = region.dtypes[source], region.accesses[source]
        else:
            _require(~source < k, f"{name}: reads step {~source}")
            other = region.steps[~source]
            shapes = other.einsum.shape, step.einsum.operand_shape(slot)
            dtype, expected = other.einsum.dtype, other.labels[: other.einsum.n_out]
        _require(shapes[0] == shapes[1], f"{name}: shapes {shapes} of slot {slot}")
        _require(access == expected, f"{name}: reads slot {slot} at {access}, not {expected}")
        _require(dtype == step.einsum.dtypes[slot], f"{name}: slot {slot} is {dtype}")


def _check_class(name: str, region: Region, k: int) -> None:
    """Check a step's labels: tiled: output and streamed; carried: output only; final: any of the output."""
    step = region.steps[k]
    out, streamed = set(range(region.n_out)), set(region.aggregated)
    own, bound = set(step.labels[: step.einsum.n_out]), {step.labels[p] for p in step.einsum.aggregated}
    tiled, carried = k in region.tiled, k in region.carried
    within = own <= out | streamed and (region.of_rows or not bound & out)
    _require(within, f"{name}: labels {step.labels}")
    _require(not (tiled and carried), f"{name}: is tiled and carried")
    if not tiled and not carried and not region.of_rows:
        free = not labels_of(step.einsum.join) and step.einsum.aggregation is None
        _require(free, f"{name}: a final step that aggregates or takes a label as a number")
        finals = all(source < 0 and ~source not in region.tiled for source in step.operands)
        _require(finals, f"{name}: a final step that reads operands or tiles")
    inner = set(range(region.n_out + region.n_streamed, len(region.labels)))
    read = {p for access in step.einsum.accesses for p in labels_read(access)}
    _require(not inner & own and {step.labels[p] for p in read} <= own | bound, f"{name}: labels that it reads")


def _check_rescales(where: str, region: Region) -> None:
    """Check that carried steps that read partial values are sums with exactly the rescales they need."""
    seen: list[set[int]] = []
    carried = set(region.carried)
    for step in region.steps:
        before = [~source for source in step.operands if source < 0]
        seen.append({k for k in before if k in carried}.union(*(seen[k] for k in before if k not in carried)))
    pairs = [(r.step, r.of) for r in region.rescales]
    _require(len(set(pairs)) == len(pairs), f"{where}: rescales {pairs}")
    for step_number, of in pairs:
        known = step_number in carried and of in carried and of in seen[step_number]
        _require(known, f"{where}: step {step_number} is rescaled by step {of}, which it does not see")
    for shift in region.shifts:
        _require(seen[shift.step] == {shift.of}, f"{where}: step {shift.step} sees more than the mean {shift.of}")
        states = [len(region.steps[k].einsum.state_dtypes) for k in (shift.step, shift.of)]
        _require(states == [1, 2], f"{where}: the mean {shift.of} does not count")
    for k in carried.difference(shift.step for shift in region.shifts):
        aggregation = region.steps[k].einsum.aggregation
        linear = aggregation is not None and aggregation.is_linear
        _require(linear or not seen[k], f"{where}: step {k} reads partial values of steps {seen[k]}")
        for m in seen[k]:
            of_m = region.steps[m].einsum.aggregation
            _require(of_m is not None and of_m.bound_sign != 0, f"{where}: step {k} reads a partial step {m}")
