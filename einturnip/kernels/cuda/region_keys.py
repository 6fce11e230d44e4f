"""Code that reports keys of a region's steps that are out of range."""

from __future__ import annotations

from collections.abc import Callable

from einturnip.ir.dtypes import I64
from einturnip.ir.region import Region, RegionStep
from einturnip.ir.scalar import slots_of
from einturnip.kernels.cuda.arguments import indented
from einturnip.kernels.cuda.folding import error_point
from einturnip.kernels.cuda.scalars import ScalarWriter


def place_number(region: Region, step: RegionStep) -> str:
    """Return C++ for the number of a point and a step, to report a key out of range."""
    k = next(n for n, s in enumerate(region.steps) if s is step)
    behind = {step.labels[p] for key in step.einsum.keys for p in step.einsum.labels_of(key.value)}
    behind -= {step.labels[key.label] for key in step.einsum.keys}
    text = f"(i64){k}"
    for p in range(len(region.labels)):
        text = f"({text} * g.extent[{p}]" + (f" + l{p})" if p in behind else ")")
    return text


def explained(region: Region, writer_of: Callable[[RegionStep], ScalarWriter]) -> str:
    """Return the entry that evaluates a key out of range again, if it depends on operands alone."""
    lines = [*error_point(), "unsigned read = 0;"]
    lines += [
        f"const i64 l{p} = rest % g.extent[{p}]; rest /= g.extent[{p}];" for p in reversed(range(len(region.labels)))
    ]
    number = 0
    for k, step in enumerate(region.steps):
        for key in step.einsum.keys:
            if all(step.operands[s] >= 0 for s in slots_of(key.value)):
                writer = writer_of(step)
                value = writer.value(key.value, I64)
                bound = f"g.bound[{step.labels[key.label]}]"
                lines += [f"if (rest == {k}) {{", *["  " + x for x in writer.lines]]
                lines.append(f"  if (h.status[2] >> 62 && ({value} < 0 || {value} >= {bound})) {{")
                lines += [f"    h.status[2] = {number};", f"    h.status[3] = (u64){value};", "  }", "}"]
            number += 1
    return indented(lines)
