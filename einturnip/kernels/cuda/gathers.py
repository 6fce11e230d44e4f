"""Gather kernels: a thread looks its row up once, and reads one or more adjacent elements of it."""

from __future__ import annotations

from einturnip.ir.einsum import Einsum
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import indented, kernel, kernel_arguments
from einturnip.kernels.cuda.elementwise import element_grid, element_labels, local, pack_lines
from einturnip.kernels.cuda.folding import explain, key_lines, looped_labels, store_state_code
from einturnip.kernels.cuda.scalars import ScalarWriter
from einturnip.kernels.cuda.types import CudaKernel, TileLayout
from einturnip.kernels.protocol import Mode


def is_gather(einsum: Einsum) -> bool:
    """Return whether keys select at most one point for each output."""
    aggregation = einsum.aggregation
    return aggregation is not None and aggregation.combine == "pick" and not looped_labels(einsum)


def rows_are_looked_up(einsum: Einsum) -> bool:
    """Return whether all elements of a row, along the output's last label, have the same keys."""
    return all(einsum.n_out - 1 not in einsum.labels_of(key.value) for key in einsum.keys)


def gather(einsum: Einsum, mode: Mode, layout: TileLayout) -> CudaKernel:
    """Return the kernel of a gather.

    With a vector layout, keys must not depend on the output's last label.
    """
    made = kernel_arguments(einsum, mode)
    aggregation = einsum.aggregation
    assert aggregation is not None
    writer = ScalarWriter(lambda s: made.operands[s].load(local), lambda p: f"h.origin[{p}] + l{p}")
    lines = [*element_labels(einsum, layout.vector, made.index), *(f"i64 l{key.label} = 0;" for key in einsum.keys)]
    last = einsum.n_out - 1
    lines += ["bool hit = false;", "do {", *("  " + x for x in key_lines(einsum, writer, declared=True))]
    lines += ["  hit = true;", "} while (0);"]

    def body(packs: dict[int, str] | None) -> list[str]:
        def operand(slot: int) -> str:
            return made.operands[slot].load(local) if packs is None or slot not in packs else f"{packs[slot]}.at[u]"

        joined = ScalarWriter(operand, lambda p: f"h.origin[{p}] + l{p}", prefix="w")
        value = joined.value(einsum.join, states.value_type(aggregation))
        state = [f"{states.state_type(aggregation)} s;", "s.clear();", "if (hit) {"]
        state += [*["  " + x for x in joined.lines], f"  s.fold(f, {value}, 0);", "}"]
        if packs is None:
            return [*state, *store_state_code(made, einsum, aggregation)]
        result = states.finalized(aggregation, "s", einsum.aggregated, einsum.dtype)
        return [*state, f"packed.at[u] = {result};"]

    lines += pack_lines(made, last, layout, body, "hit") if layout.vector > 1 else body(None)
    texts = {"gather": indented(lines), "explain": explain(made, einsum)}
    entries = [(name, made.entry(name, text)) for name, text in texts.items()]
    return kernel(made, layout, entries, lambda e: element_grid("gather", einsum, layout.vector, e), lambda e: 0)
