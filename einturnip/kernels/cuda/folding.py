"""Reduction kernels: several threads share an output; with few outputs, several blocks do.

One kernel serves wide rows and tall columns: parameters of the launch determine how threads are divided between outputs
and folded points. States are combined in an order that depends only on extents, so results are reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from einturnip.core.errors import InternalError
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import I64
from einturnip.ir.einsum import Einsum, Index, Key
from einturnip.ir.scalar import slots_of
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, decode, indented, kernel, kernel_arguments, product
from einturnip.kernels.cuda.elementwise import element, local
from einturnip.kernels.cuda.scalars import ScalarWriter, ctype
from einturnip.kernels.cuda.types import ANY, NOWHERE, CudaKernel, LaunchGrid
from einturnip.kernels.protocol import Mode

THREADS = 256
BLOCK_LENGTH = 64
"""Values in a partial state, and partial states in a block, if each addition rounds (blocked summation).

Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), section 4.2.
"""
_AHEAD = 4  # points whose operands a thread reads before it folds them; divides BLOCK_LENGTH
_BLOCKS = 1024  # enough thread blocks for any present GPU
_MIN_POINTS = 16  # points per thread, at least, if several blocks share an output
_MAX_PARTS = 512
_MAX_STATES = 1 << 16  # partial states in the workspace


def folding(einsum: Einsum, mode: Mode) -> CudaKernel:
    """Return the kernel of an einsum with an aggregation."""
    made, parts = folds(einsum, mode)
    return kernel(made, ANY, parts, lambda e: grids(einsum, e), lambda e: workspace(einsum, e))


def folds(einsum: Einsum, mode: Mode) -> tuple[KernelArguments, list[tuple[str, str]]]:
    """Return the arguments and entries of the general fold.

    The entries fold, combine parts, and explain errors.
    """
    made = kernel_arguments(einsum, mode)
    parts = [("fold", made.entry("fold", _fold(made, einsum))), ("parts", made.entry("parts", _parts(made, einsum)))]
    if einsum.keys:
        parts.append(("explain", made.entry("explain", explain(made, einsum))))
    return made, parts


def looped_labels(einsum: Einsum) -> list[int]:
    """Return the aggregated labels over which the kernel loops.

    The label of a gather's key is looked up instead.
    """
    keyed = {key.label for key in einsum.keys}
    return [p for p in einsum.aggregated if p not in keyed]


def by_rows(einsum: Einsum) -> bool:
    """Return whether the operand with the most axes is contiguous along an aggregated label."""
    widest = max(einsum.accesses, key=len, default=())
    last = widest[-1] if widest else 0
    label = last if isinstance(last, int) else last.terms[-1][0] if last.terms else 0
    return label >= einsum.n_out


def shape_of(einsum: Einsum, extents: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return how threads and blocks are divided between outputs and folded points.

    The result is: threads over outputs, threads over folded points, blocks over outputs, parts of the folded points.

    The first two have the product THREADS. Parts are blocks that share the same outputs.
    """
    outputs, points = math.prod(extents[: einsum.n_out]), math.prod(extents[p] for p in looped_labels(einsum))
    enough = 1 << max(0, math.ceil(math.log2(max(1, points))))  # a thread for each point
    if by_rows(einsum):
        down = min(THREADS, enough)
    else:
        down = min(enough, max(1, THREADS // max(1, outputs)), THREADS) if outputs < 32 else min(enough, 8)
        down = 1 if outputs >= _BLOCKS * THREADS else down
    down = 1 << (down.bit_length() - 1)
    across = THREADS // down
    blocks = -(-outputs // across)
    parts = 1
    if blocks and blocks < _BLOCKS:
        parts = min(_MAX_PARTS, _BLOCKS // blocks, points // (down * _MIN_POINTS), _MAX_STATES // max(1, outputs))
    return across, down, blocks, max(1, parts)


def grids(einsum: Einsum, extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
    """Return the launches of the general fold."""
    across, down, blocks, parts = shape_of(einsum, extents)
    if not blocks:
        return ()
    threads, rows = (THREADS, 1, 1), int(by_rows(einsum))
    first = LaunchGrid("fold", (blocks, parts, 1), threads, (across, down, rows, parts))
    if parts == 1:
        return (first,)
    outputs = math.prod(extents[: einsum.n_out])
    width = min(THREADS, 1 << (parts.bit_length() - 1))
    return first, LaunchGrid(
        "parts", (-(-outputs * width // THREADS), 1, 1), threads, (THREADS // width, width, 1, parts)
    )


def workspace(einsum: Einsum, extents: tuple[int, ...]) -> int:
    """Return the bytes of the parts' states in the workspace."""
    _, _, _, parts = shape_of(einsum, extents)
    assert einsum.aggregation is not None
    nbytes = parts * math.prod(extents[: einsum.n_out]) * states.state_nbytes(einsum.aggregation)
    return -(-nbytes // 256) * 256 if parts > 1 else 0


def thread_lines(state: str) -> list[str]:
    """Return statements for a thread's position.

    ``number``: of its output. ``mine``: among the ``down`` threads that share the output.
    """
    return [
        f"__shared__ __align__(16) unsigned char shared[{THREADS} * sizeof({state})];",
        "const int thread = threadIdx.x, across = (int)g.param[0], down = (int)g.param[1];",
        "const int mine = g.param[2] ? thread % down : thread / across;",
        "const int column = g.param[2] ? thread / down : thread % across;",
        "const int step = g.param[2] ? 1 : across;",
        "const i64 number = blockIdx.x * (i64)across + column;",
        "i64 rest = number;",
    ]


def _fold(made: KernelArguments, einsum: Einsum) -> str:
    aggregation = einsum.aggregation
    assert aggregation is not None
    state, out, walked = states.state_type(aggregation), range(einsum.n_out), looped_labels(einsum)
    lines = [*thread_lines(state), *decode("rest", out), "const bool in_range = rest == 0;"]
    lines += [f"{state} s;", "s.clear();", f"const i64 points = {product(walked)};"]
    lines += ["if (in_range && points) {", "  const i64 stride = down * g.param[3];"]
    lines.append("  const i64 begin = blockIdx.y * (i64)down + mine;")
    lines += ["  " + line for line in _odometer(walked)]
    lines += ["  " + line for line in _walk(state, aggregation, made, einsum, walked)]
    lines += ["}", "combine_threads(f, s, shared, thread, step, mine, down);", "if (in_range && mine == 0) {"]
    lines += ["  if (g.param[3] > 1) {"]
    lines += [f"    (({state}*)h.workspace)[blockIdx.y * ({product(out)}) + number] = s;", "  } else {"]
    lines += ["    " + line for line in store_state_code(made, einsum, aggregation)]
    return indented([*lines, "  }", "}"])


def _walk(state: str, aggregation: Aggregation, made: KernelArguments, einsum: Einsum, walked: list[int]) -> list[str]:
    """Return the loop that folds a thread's points into ``s``.

    It uses blocked summation if each addition rounds.
    """
    if not aggregation.rounds:
        body = _points(aggregation, made, einsum, walked, "s")
        return ["for (i64 n = begin; n < points;) {", *["  " + line for line in body], "}"]
    body = _points(aggregation, made, einsum, walked, "part")
    return [
        "for (i64 n = begin; n < points;) {",
        f"  {state} block;",
        "  block.clear();",
        f"  for (int b = 0; b < {BLOCK_LENGTH} && n < points; b++) {{",
        f"    {state} part;",
        "    part.clear();",
        f"    for (int k = 0; k < {BLOCK_LENGTH} && n < points; k += {_AHEAD}) {{",
        *["      " + line for line in body],
        "    }",
        "    block.combine(f, part);",
        "  }",
        "  s.combine(f, block);",
        "}",
    ]


def _points(aggregation: Aggregation, made: KernelArguments, einsum: Einsum, walked: list[int], name: str) -> list[str]:
    """Return statements that fold the thread's next _AHEAD points or the rest, and advance ``n``.

    The loads of all points precede the first use of one, so that they are under way together.
    """
    one_by_one = [
        "#pragma unroll 1",
        f"for (int u = 0; u < {_AHEAD} && n < points; u++, n += stride) {{",
        *("  " + line for line in [*point(made, einsum, name), *_turn(walked)]),
        "}",
    ]
    if einsum.keys or aggregation.indexed:
        return one_by_one
    slots = sorted(slots_of(einsum.join))
    read = [f"{ctype(made.operands[s].dtype)} r{s}[{_AHEAD}];" for s in slots]
    read += [f"i64 m{p}[{_AHEAD}];" for p in walked]
    advance = [*(f"r{s}[u] = {made.operands[s].load(local)};" for s in slots), *(f"m{p}[u] = l{p};" for p in walked)]
    writer = ScalarWriter(lambda slot: f"r{slot}[u]", lambda p: f"h.origin[{p}] + l{p}")
    kind = states.value_type(aggregation)
    value = writer.value(einsum.join, kind)
    join = [*(f"const i64 l{p} = m{p}[u];" for p in walked), *writer.lines, f"x[u] = {value};"]
    loop = ["#pragma unroll", f"for (int u = 0; u < {_AHEAD}; u++) {{"]
    together = [*read, *loop, *("  " + line for line in [*advance, *_turn(walked)]), "}"]
    together += [f"{ctype(kind)} x[{_AHEAD}];", *loop, *("  " + line for line in join), "}"]
    together += [f"fold_values(f, {name}, x);", f"n += {_AHEAD} * stride;"]
    return [
        f"if (n + {_AHEAD - 1} * stride < points) {{",
        *("  " + line for line in together),
        "} else {",
        *("  " + line for line in one_by_one),
        "}",
    ]


def _parts(made: KernelArguments, einsum: Einsum) -> str:
    """Return the second pass, which combines the parts' states."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    state, out = states.state_type(aggregation), range(einsum.n_out)
    lines = [*thread_lines(state), *decode("rest", out), "const bool in_range = rest == 0;"]
    lines += [f"{state} s;", "s.clear();", f"const i64 outputs = {product(out)};", "if (in_range) {"]
    lines.append("  for (i64 n = mine; n < g.param[3]; n += down)")
    lines += [f"    s.combine(f, (({state}*)h.workspace)[n * outputs + number]);", "}"]
    lines += ["combine_threads(f, s, shared, thread, step, mine, down);", "if (in_range && mine == 0) {"]
    lines += ["  " + line for line in store_state_code(made, einsum, aggregation)]
    return indented([*lines, "}"])


def store_state_code(made: KernelArguments, einsum: Einsum, aggregation: Aggregation, name: str = "s") -> list[str]:
    """Return statements that store a tile's state: as the result, or combined with the state in memory."""
    if made.mode == "full":
        result = states.finalized(aggregation, name, einsum.aggregated, einsum.dtype)
        return [made.outs[0].store(local, result)]
    return states.accumulate_state(aggregation, name, made.outs, local)


def _odometer(walked: list[int]) -> list[str]:
    """Return declarations of the looped labels' first indices and of their increments per step."""
    lines = ["i64 from = begin, by = stride;"]
    for p in reversed(walked):
        lines.append(f"i64 l{p} = from % g.extent[{p}]; from /= g.extent[{p}];")
        lines.append(f"const i64 d{p} = by % g.extent[{p}]; by /= g.extent[{p}];")
    return lines if walked else []


def _turn(walked: list[int]) -> list[str]:
    """Return statements that advance the indices by one step: mixed-radix digits with carries."""
    lines = []
    for n, p in enumerate(reversed(walked)):
        lines.append(f"l{p} += d{p}{' + carry' * (n > 0)};")
        if n < len(walked) - 1:
            kind = "int carry" if n == 0 else "carry"
            lines.append(f"{kind} = l{p} >= g.extent[{p}]; if (carry) l{p} -= g.extent[{p}];")
    return lines


def point(
    made: KernelArguments,
    einsum: Einsum,
    name: str,
    selected: Sequence[int] = (),
    packs: Mapping[int, str] | None = None,
) -> list[str]:
    """Return statements that fold one point into the state ``name``, if its keys select it.

    ``selected``: labels whose keys are known to select the point. ``packs``: names of vectors by operand, whose element
    u is the point's.
    """
    aggregation = einsum.aggregation
    assert aggregation is not None

    def operand(slot: int) -> str:
        return made.operands[slot].load(local) if not packs or slot not in packs else element(made, packs, slot)

    writer = ScalarWriter(operand, lambda p: f"h.origin[{p}] + l{p}")
    lines = ["do {", *("  " + line for line in key_lines(einsum, writer, selected))]
    value = writer.value(einsum.join, states.value_type(aggregation))
    flat = flat_index(einsum) if aggregation.indexed else "0"
    return [*lines, *["  " + line for line in writer.lines], f"  {name}.fold(f, {value}, {flat});", "} while (0);"]


def key_lines(einsum: Einsum, writer: ScalarWriter, selected: Sequence[int] = (), declared: bool = False) -> list[str]:
    """Return statements that evaluate the keys, and leave the loop if one does not select the point.

    ``selected``: labels whose keys are left out. ``declared``: the labels' indices are declared already.
    """
    lines = []
    for n, key in enumerate(ordered(einsum)):
        p = key.label
        if p in selected:
            continue
        value = writer.value(key.value, I64)
        lines += writer.lines
        writer.lines.clear()
        lines.append(f"if (!inside({value}, g.bound[{p}], {place(einsum, n)}, h.status)) break;")
        if p < einsum.n_out:
            lines.append(f"if ({value} != h.origin[{p}] + l{p}) break;")
        else:
            lines.append(f"{'' if declared else 'const i64 '}l{p} = {value} - h.origin[{p}];")
            lines.append(f"if (l{p} < 0 || l{p} >= g.extent[{p}]) break;")
    return lines


def flat_index(einsum: Einsum) -> str:
    """Return C++ for the flat index of a point over the aggregated labels of the whole tensor."""
    text = "(i64)0"
    for p in einsum.aggregated:
        text = f"({text} * g.bound[{p}] + h.origin[{p}] + l{p})"
    return text


def ordered(einsum: Einsum) -> list[Key]:
    """Return the keys, each after the keys whose labels its value uses."""
    left, found = list(einsum.keys), list[Key]()
    while left:
        unknown = {k.label for k in left if k.label >= einsum.n_out}
        ready = [k for k in left if not unknown & (einsum.labels_of(k.value) - {k.label})]
        if not ready:
            raise InternalError("keys depend on each other in a cycle")
        found.append(ready[0])
        left.remove(ready[0])
    return found


def place(einsum: Einsum, n: int) -> str:
    """Return C++ for the flat number in the tile of the point at which key ``n`` is evaluated.

    Labels that the key does not depend on count as 0, so that each value of a key has one number.
    """
    key = ordered(einsum)[n]
    behind = einsum.labels_of(key.value)
    text = "(i64)0"
    for p in range(len(einsum.labels)):
        text = f"({text} * ein::max(f, (i64)g.extent[{p}], (i64)1)" + (f" + l{p})" if p in behind else ")")
    return text


def error_point() -> tuple[str, str]:
    """Return statements that read the number of the point with an error, and end the entry if none has."""
    return "i64 rest = (i64)h.status[1];", f"if (rest == {NOWHERE}) return;"


def explain(made: KernelArguments, einsum: Einsum) -> str:
    """Return the entry in which one thread evaluates the keys again at the point with an error, if any."""
    lines = [*error_point()]
    for p in reversed(range(len(einsum.labels))):
        lines.append(f"const i64 n{p} = ein::max(f, (i64)g.extent[{p}], (i64)1);")
        lines.append(f"i64 l{p} = rest % n{p}; rest /= n{p};")
    writer = ScalarWriter(lambda s: made.operands[s].load(local), lambda p: f"h.origin[{p}] + l{p}")
    lines.append("do {")
    for key in ordered(einsum):
        value = writer.value(key.value, I64)
        lines += writer.lines
        writer.lines.clear()
        lines.append(f"if ({value} < 0 || {value} >= g.bound[{key.label}]) {{")
        lines += [f"  h.status[2] = {einsum.keys.index(key)};", f"  h.status[3] = (u64){value};", "  break;", "}"]
        if key.label >= einsum.n_out:
            lines.append(f"l{key.label} = {value} - h.origin[{key.label}];")
    return indented([*lines, "} while (0);"])


def separable(einsum: Einsum) -> bool:
    """Return whether each operand's address is a sum of terms of single labels."""
    return all(not isinstance(p, Index) or p.affine for access in einsum.accesses for p in access)
