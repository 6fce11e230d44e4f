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
from einturnip.kernels.cuda.elementwise import local
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
from einturnip.kernels.cuda.types import ANY, CudaKernel, LaunchGrid
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


def scatter(einsum: Einsum, mode: Mode, found: ScatterLabels) -> CudaKernel:
    """Return the kernel: the sort's entries for many groups, and the general fold for few."""
    made, parts = folds(einsum, mode)
    for part, text in (
        ("keys", _keys(made, einsum, found)),
        ("count", _call("count_digits({0}, counts, n, share, sorters, (int)g.param[3]);")),
        ("scan", _call("scan_counts(counts, DIGITS * sorters);")),
        ("place", _call("place_rows({0}, {1}, {2}, {3}, counts, n, share, sorters, (int)g.param[3]);")),
        ("groups", _groups(made, einsum, found)),
    ):
        parts.append((part, made.entry(part, text)))
    return kernel(made, ANY, parts, lambda e: grids(einsum, found, e), lambda e: workspace(einsum, found, e), _PRELUDE)


_PRELUDE = '#include "sort.cuh"\n'


def many(found: ScatterLabels, extents: Sequence[int]) -> bool:
    """Return whether a tile has enough rows and groups for the sort to pay."""
    rows, groups = (math.prod(extents[p] for p in labels) for labels in (found.rows, found.groups))
    return _MIN_ROWS <= rows < _LIMIT and _MIN_GROUPS <= groups < _LIMIT


def shares(rows: int) -> tuple[int, int]:
    """Return the number of consecutive rows that a thread sorts, and the number of threads."""
    share = max(16, -(-rows // _MAX_SORTERS))
    return share, -(-rows // share)


def grids(einsum: Einsum, found: ScatterLabels, extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
    """Return the launches: compute the keys, run the passes of the sort, fold the groups."""
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
    down = min(32, 1 << max(0, (rows // groups).bit_length() - 3))
    across = THREADS // down
    made.append(LaunchGrid("groups", (-(-outputs // across), 1, 1), threads, (across, down, 0, rows, passes % 2)))
    return tuple(made)


def workspace(einsum: Einsum, found: ScatterLabels, extents: tuple[int, ...]) -> int:
    """Return the bytes of two copies of keys and row numbers, and of the digits' counts."""
    if not many(found, extents):
        return fold_workspace(einsum, extents)
    rows = math.prod(extents[p] for p in found.rows)
    return -(-(4 * 4 * rows + 4 * 16 * shares(rows)[1]) // 256) * 256


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


def _fold_row(made: KernelArguments, einsum: Einsum) -> list[str]:
    """Return statements that fold one value of a group; with blocked summation if each addition rounds."""
    assert einsum.aggregation is not None
    if not einsum.aggregation.rounds:
        return point(made, einsum, "s")
    return [
        "{",
        *["  " + line for line in point(made, einsum, "part")],
        f"  if (++folded % {BLOCK_LENGTH} == 0) {{",
        "    block.combine(f, part);",
        "    part.clear();",
        f"    if (folded % {BLOCK_LENGTH * BLOCK_LENGTH} == 0) {{",
        "      s.combine(f, block);",
        "      block.clear();",
        "    }",
        "  }",
        "}",
    ]


def _rest(einsum: Einsum) -> list[str]:
    """Return statements that combine the last, incomplete partial states."""
    assert einsum.aggregation is not None
    return ["block.combine(f, part);", "s.combine(f, block);"] if einsum.aggregation.rounds else []


def _groups(made: KernelArguments, einsum: Einsum, found: ScatterLabels) -> str:
    """Return the entry that folds each output from the rows of its group."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    state, out = states.state_type(aggregation), range(einsum.n_out)
    inner = [p for p in looped_labels(einsum) if p not in found.rows]
    lines = [*thread_lines(state), *decode("rest", out), "const bool in_range = rest == 0;"]
    lines += [*_buffers("g.param[3]", "g.param[4]"), f"{state} s;", "s.clear();", "if (in_range) {", "  i64 group = 0;"]
    if aggregation.rounds:
        lines += [f"  {state} part, block;", "  part.clear();", "  block.clear();", "  i64 folded = 0;"]
    lines += [f"  group = group * g.extent[{p}] + l{p};" for p in found.groups]
    lines += ["  const i64 end = first_not_less(source, n, group + 1);"]
    lines += ["  for (i64 at = first_not_less(source, n, group) + mine; at < end; at += down) {"]
    lines += ["    i64 row = source[n + at];", *["    " + x for x in decode("row", found.rows)]]
    lines += [f"    for (i64 l{p} = 0; l{p} < g.extent[{p}]; l{p}++)" for p in inner]
    lines += ["    " + x for x in _fold_row(made, einsum)]
    lines += [
        "  }",
        *["  " + x for x in _rest(einsum)],
        "}",
        "combine_threads(f, s, shared, thread, step, mine, down);",
        "if (in_range && mine == 0) {",
    ]
    return indented([*lines, *["  " + x for x in store_state_code(made, einsum, aggregation)], "}"])
