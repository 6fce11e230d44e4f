"""Kernels for aggregation by key with many groups: sort rows by group, then fold each group's rows.

Rows are points of the labels that the keys depend on. The radix sort is stable, so sums of floats depend on the data
alone. The general fold, in which each output reads every row, is used for few groups and for keys that depend on labels
of the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from einturnip.ir.dtypes import I64
from einturnip.ir.einsum import Einsum
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, decode, indented, kernel, product
from einturnip.kernels.cuda.elementwise import load_pack, local
from einturnip.kernels.cuda.folding import (
    BLOCK_LENGTH,
    THREADS,
    folds,
    looped_labels,
    ordered,
    place,
    point,
    store_state_code,
    thread_lines,
)
from einturnip.kernels.cuda.folding import grids as fold_grids
from einturnip.kernels.cuda.folding import workspace as fold_workspace
from einturnip.kernels.cuda.scalars import ScalarWriter
from einturnip.kernels.cuda.types import CudaKernel, LaunchGrid, TileLayout
from einturnip.kernels.protocol import Mode

_MIN_GROUPS, _MIN_ROWS = 16, 1024  # below these, the general fold is used
_LIMIT = 1 << 31  # of rows and groups, which are 32-bit numbers
_MAX_SORTERS = 1 << 14  # threads of the sort
_BITS = 4  # bits of a group's number that one pass sorts by


@dataclass(frozen=True, slots=True)
class ScatterLabels:
    """The labels of rows and of groups, each in the order in which their points are numbered."""

    rows: tuple[int, ...]
    groups: tuple[int, ...]


def rows_of(einsum: Einsum) -> ScatterLabels | None:
    """Return the labels of rows and groups; None if the sort cannot be used.

    That is without groups, or if keys depend on the output's labels.
    """
    groups = tuple(sorted(k.label for k in einsum.keys if k.label < einsum.n_out))
    behind = frozenset(p for k in einsum.keys if k.label in groups for p in einsum.labels_of(k.value))
    walked = looped_labels(einsum)
    if not groups or not behind or not all(p in walked for p in behind):
        return None
    return ScatterLabels(tuple(p for p in walked if p in behind), groups)


def moves_rows(einsum: Einsum) -> bool:
    """Return whether the elements of a row, along the output's last label, all go to the same group."""
    found, last = rows_of(einsum), einsum.n_out - 1
    if found is None or last in found.groups or last in found.rows:
        return False
    return all(last not in einsum.labels_of(key.value) for key in einsum.keys)


def scatter(einsum: Einsum, mode: Mode, found: ScatterLabels, layout: TileLayout) -> CudaKernel:
    """Return the kernel: the sort's entries for many groups, and the general fold for few."""
    made, parts = folds(einsum, mode)
    for part, text in (
        ("keys", _keys(made, einsum, found)),
        ("count", _call("count_digits({0}, counts, n, share, sorters, (int)g.param[3]);")),
        ("scan", _call("scan_counts(counts, DIGITS * sorters);")),
        ("place", _call("place_rows({0}, {1}, {2}, {3}, counts, n, share, sorters, (int)g.param[3]);")),
        ("starts", _starts()),
        ("groups", _groups(made, einsum, found, layout)),
    ):
        parts.append((part, made.entry(part, text)))

    def launches(extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
        return grids(einsum, found, extents, layout.vector)

    return kernel(made, layout, parts, launches, lambda e: workspace(einsum, found, e), _PRELUDE)


_PRELUDE = '#include "sort.cuh"\n'


def many(found: ScatterLabels, extents: Sequence[int]) -> bool:
    """Return whether a tile has enough rows and groups for the sort to pay."""
    rows, groups = (math.prod(extents[p] for p in labels) for labels in (found.rows, found.groups))
    return _MIN_ROWS <= rows < _LIMIT and _MIN_GROUPS <= groups < _LIMIT


def shares(rows: int) -> tuple[int, int]:
    """Return the number of consecutive rows that a thread sorts, and the number of threads."""
    share = max(16, -(-rows // _MAX_SORTERS))
    return share, -(-rows // share)


def grids(einsum: Einsum, found: ScatterLabels, extents: tuple[int, ...], vector: int = 1) -> tuple[LaunchGrid, ...]:
    """Return the launches: compute the keys, run the passes of the sort, fold the groups.

    ``vector``: outputs of a row that a thread folds.
    """
    outputs = math.prod(extents[: einsum.n_out])
    if not many(found, extents) or not outputs:
        return fold_grids(einsum, extents)
    rows, groups = (math.prod(extents[p] for p in labels) for labels in (found.rows, found.groups))
    share, sorters = shares(rows)
    threads, wide = (THREADS, 1, 1), (-(-sorters // THREADS), 1, 1)
    made = [LaunchGrid("keys", (-(-rows // THREADS), 1, 1), threads, (rows, share, sorters, 0, 0))]
    passes = -(-groups.bit_length() // _BITS)  # the number ``groups`` itself marks rows without a group in the tile
    for n in range(passes):
        params = rows, share, sorters, n * _BITS, n % 2
        made += [LaunchGrid("count", wide, threads, params), LaunchGrid("scan", (1, 1, 1), threads, params)]
        made.append(LaunchGrid("place", wide, threads, params))
    params = rows, share, sorters, groups, passes % 2
    made.append(LaunchGrid("starts", (-(-(groups + 1) // THREADS), 1, 1), threads, params))
    down = min(32, 1 << max(0, (rows // groups).bit_length() - 4))
    across = THREADS // down
    if vector > 1:
        outputs = outputs // extents[einsum.n_out - 1] * -(-extents[einsum.n_out - 1] // vector)
    made.append(LaunchGrid("groups", (-(-outputs // across), 1, 1), threads, (across, down, 0, rows, passes % 2)))
    return tuple(made)


def workspace(einsum: Einsum, found: ScatterLabels, extents: tuple[int, ...]) -> int:
    """Return the bytes of the workspace.

    It has two copies of keys and row numbers, then the digits' counts or, after the sort, the groups' starts.
    """
    if not many(found, extents):
        return fold_workspace(einsum, extents)
    rows, groups = (math.prod(extents[p] for p in labels) for labels in (found.rows, found.groups))
    return -(-(4 * 4 * rows + 4 * max(16 * shares(rows)[1], groups + 1)) // 256) * 256


def _buffers(rows: str, parity: str) -> list[str]:
    return [
        f"const i64 n = {rows};",
        f"unsigned* const source = (unsigned*)h.workspace + ({parity} ? 2 * n : 0);",
        f"unsigned* const target = (unsigned*)h.workspace + ({parity} ? 0 : 2 * n);",
    ]


def _call(text: str) -> str:
    lines = [*_buffers("g.param[0]", "g.param[4]"), "const i64 share = g.param[1], sorters = g.param[2];"]
    lines.append("unsigned* const counts = (unsigned*)h.workspace + 4 * n;")
    return indented([*lines, text.format("source", "source + n", "target", "target + n")])


def _starts() -> str:
    """Return the entry that finds each group's first row in the sorted order, and the last one's end."""
    lines = [*_buffers("g.param[0]", "g.param[4]"), "unsigned* const starts = (unsigned*)h.workspace + 4 * n;"]
    lines.append("const i64 group = blockIdx.x * (i64)blockDim.x + threadIdx.x;")
    return indented([*lines, "if (group <= g.param[3]) starts[group] = (unsigned)first_not_less(source, n, group);"])


def _keys(made: KernelArguments, einsum: Einsum, found: ScatterLabels) -> str:
    """Return the entry that computes each row's group.

    The number of groups marks rows without a group in the tile.
    """
    lines = [*_buffers("g.param[0]", "0"), "const i64 number = blockIdx.x * (i64)blockDim.x + threadIdx.x;"]
    lines += ["if (number >= n) return;", "i64 rest = number;", *decode("rest", found.rows)]
    lines += ["bool counts = true;", "i64 group = 0;"]
    writer = ScalarWriter(lambda s: made.operands[s].load(local), lambda p: f"h.origin[{p}] + l{p}")
    of = {key.label: (n, key) for n, key in enumerate(ordered(einsum))}
    for p in found.groups:
        n, key = of[p]
        value = writer.value(key.value, I64)
        lines += writer.lines
        writer.lines.clear()
        lines.append(f"counts &= inside({value}, g.bound[{p}], {place(einsum, n)}, h.status);")
        lines.append(f"const i64 g{p} = {value} - h.origin[{p}];")
        lines.append(f"counts &= g{p} >= 0 && g{p} < g.extent[{p}];")
        lines.append(f"group = group * g.extent[{p}] + g{p};")
    lines.append(f"source[number] = counts ? (unsigned)group : (unsigned)({product(found.groups)});")
    return indented([*lines, "source[n + number] = (unsigned)number;"])


def _groups(made: KernelArguments, einsum: Einsum, found: ScatterLabels, layout: TileLayout) -> str:
    """Return the entry that folds outputs from the rows of their group.

    A thread has ``vector`` adjacent outputs of a row, u = 0, 1, ... It uses blocked summation if each addition rounds.
    """
    aggregation = einsum.aggregation
    assert aggregation is not None
    state, last, vector = states.state_type(aggregation), einsum.n_out - 1, layout.vector
    inner = [p for p in looped_labels(einsum) if p not in found.rows]
    lines = [*thread_lines(state), *_outputs(einsum, vector), "const bool in_range = rest == 0;"]
    lines += [*_buffers("g.param[3]", "g.param[4]"), f"{state} s[{vector}];", *_each(vector, ["s[u].clear();"])]
    lines += ["if (in_range) {", "  i64 group = 0;"]
    into = "s[u]"
    if aggregation.rounds:
        into = "part[u]"
        lines += [f"  {state} part[{vector}], block[{vector}];", "  i64 folded = 0;"]
        lines += ["  " + x for x in _each(vector, ["part[u].clear();", "block[u].clear();"])]
    lines += [f"  group = group * g.extent[{p}] + l{p};" for p in found.groups]
    lines += ["  const unsigned* const starts = (const unsigned*)h.workspace + 4 * n;"]
    lines += ["  const i64 end = starts[group + 1];", "  for (i64 at = starts[group] + mine; at < end; at += down) {"]
    lines += ["    i64 row = source[n + at];", *["    " + x for x in decode("row", found.rows, in_range=True)]]
    lines += [f"    for (i64 l{p} = 0; l{p} < g.extent[{p}]; l{p}++) {{" for p in inner]
    lines += ["    " + x for x in _row(made, einsum, found, layout, into)]
    lines += ["    " + x for x in (_blocked(vector) if aggregation.rounds else [])]
    lines += ["    " + "}" * len(inner), "  }"]
    if aggregation.rounds:
        rest = ["block[u].combine(f, part[u]);", "s[u].combine(f, block[u]);"]
        lines += ["  " + x for x in _each(vector, rest)]
    lines.append("}")
    store = ["combine_threads(f, s[u], shared, thread, step, mine, down);"]
    store += [f"const i64 l{last} = first + u;"] if vector > 1 else []
    inside = f" && l{last} < g.extent[{last}]" if vector > 1 else ""
    store += [f"if (in_range && mine == 0{inside}) {{", f"  {state} made = s[u];"]
    store += [*["  " + x for x in store_state_code(made, einsum, aggregation, "made")], "}"]
    return indented([*lines, *_each(vector, store)])


def _each(vector: int, body: list[str]) -> list[str]:
    """Return a loop over a thread's outputs."""
    return ["#pragma unroll", f"for (int u = 0; u < {vector}; u++) {{", *["  " + x for x in body], "}"]


def _outputs(einsum: Einsum, vector: int) -> list[str]:
    """Return statements that decode the labels of a thread's outputs.

    ``first`` is the index of the first of ``vector`` outputs along the last label.
    """
    if vector == 1:
        return decode("rest", range(einsum.n_out))
    last = einsum.n_out - 1
    lines = [f"const i64 wide = (g.extent[{last}] + {vector - 1}) / {vector};"]
    return [*lines, f"const i64 first = rest % wide * {vector}; rest /= wide;", *decode("rest", range(last))]


def _row(made: KernelArguments, einsum: Einsum, found: ScatterLabels, layout: TileLayout, into: str) -> list[str]:
    """Return statements that fold a thread's elements of a row into the states ``into``."""
    vector, last = layout.vector, einsum.n_out - 1
    if vector == 1:
        return _each(1, point(made, einsum, into, found.groups))
    at = f"const i64 l{last} = first + u;"
    lines = [f"if (first + {vector} > g.extent[{last}]) {{", "  #pragma unroll"]
    lines.append(f"  for (int u = 0; u < {vector}; u++) if (first + u < g.extent[{last}]) {{")
    lines += [f"    {at}", *["    " + x for x in point(made, einsum, into, found.groups)], "  }", "} else {"]
    for slot in sorted(layout.packed):
        lines.append("  " + load_pack(made.operands[slot], vector, last, f"p{slot}"))
    packs = {slot: f"p{slot}" for slot in layout.packed}
    folded = point(made, einsum, into, found.groups, packs)
    return [*lines, *["  " + x for x in _each(vector, [at, *folded])], "}"]


def _blocked(vector: int) -> list[str]:
    """Return statements that combine partial states after BLOCK_LENGTH values, and blocks likewise."""
    return [
        f"if (++folded % {BLOCK_LENGTH} == 0) {{",
        *["  " + x for x in _each(vector, ["block[u].combine(f, part[u]);", "part[u].clear();"])],
        f"  if (folded % {BLOCK_LENGTH * BLOCK_LENGTH} == 0) {{",
        *["    " + x for x in _each(vector, ["s[u].combine(f, block[u]);", "block[u].clear();"])],
        "  }",
        "}",
    ]
