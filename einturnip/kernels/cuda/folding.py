"""Kernels that fold: threads of a block share an output's points, blocks too where outputs are few.

One kernel does wide rows and tall columns: how its threads are laid over outputs and folded points is a number that
the launch gives. States meet in one order, which hangs on extents alone.
"""

from __future__ import annotations

import math

from einturnip.core.errors import InternalError
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import I64
from einturnip.ir.einsum import Einsum, Index, Key
from einturnip.kernels.cuda import states
from einturnip.kernels.cuda.arguments import KernelArguments, decode, frame, indented, kernel, product
from einturnip.kernels.cuda.elementwise import local
from einturnip.kernels.cuda.scalars import ScalarWriter
from einturnip.kernels.cuda.types import ANY, CudaKernel, LaunchGrid
from einturnip.kernels.expr.fold import rounds_off
from einturnip.kernels.protocol import Mode

THREADS = 256
IN_A_ROW = 64  # values, or partial states, that a state takes where each is rounded
_BLOCKS = 1024  # enough for any GPU of today
_LEAST_SHARE = 16  # points that a thread should fold at least before blocks share an output
_MOST_PARTS = 512
_MOST_STATES = 1 << 16  # that parts leave in the workspace


def folding(einsum: Einsum, mode: Mode) -> CudaKernel:
    """The kernel of an einsum with an aggregation."""
    made, parts = folds(einsum, mode)
    return kernel(made, ANY, parts, lambda e: grids(einsum, e), lambda e: workspace(einsum, e))


def folds(einsum: Einsum, mode: Mode) -> tuple[KernelArguments, list[tuple[str, str]]]:
    """The frame and entries of the general fold."""
    made = frame(einsum, mode)
    parts = [("fold", made.entry("fold", _fold(made, einsum))), ("parts", made.entry("parts", _parts(made, einsum)))]
    if einsum.keys:
        parts.append(("explain", made.entry("explain", _explain(made, einsum))))
    return made, parts


def looped_labels(einsum: Einsum) -> list[int]:
    """The aggregated labels that are walked; those of a gather are found."""
    keyed = {key.label for key in einsum.keys}
    return [p for p in einsum.aggregated if p not in keyed]


def by_rows(einsum: Einsum) -> bool:
    """True where the widest operand lies contiguous along what is folded."""
    widest = max(einsum.accesses, key=len, default=())
    last = widest[-1] if widest else 0
    label = last if isinstance(last, int) else last.terms[-1][0] if last.terms else 0
    return label >= einsum.n_out


def shape_of(einsum: Einsum, extents: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Threads over outputs and over folded points, blocks over outputs, parts of the folded points."""
    outputs, points = math.prod(extents[: einsum.n_out]), math.prod(extents[p] for p in looped_labels(einsum))
    want = 1 << max(0, math.ceil(math.log2(max(1, points))))
    if by_rows(einsum):
        down = min(THREADS, want)
    else:
        down = min(want, max(1, THREADS // max(1, outputs)), THREADS) if outputs < 32 else min(want, 8)
        down = 1 if outputs >= _BLOCKS * THREADS else down
    down = 1 << (down.bit_length() - 1)
    across = THREADS // down
    blocks = -(-outputs // across)
    parts = 1
    if blocks and blocks < _BLOCKS:
        parts = min(_MOST_PARTS, _BLOCKS // blocks, points // (down * _LEAST_SHARE), _MOST_STATES // max(1, outputs))
    return across, down, blocks, max(1, parts)


def grids(einsum: Einsum, extents: tuple[int, ...]) -> tuple[LaunchGrid, ...]:
    """The launches of the general fold."""
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
    """Bytes of the parts' states."""
    _, _, _, parts = shape_of(einsum, extents)
    assert einsum.aggregation is not None
    nbytes = parts * math.prod(extents[: einsum.n_out]) * states.state_nbytes(einsum.aggregation)
    return -(-nbytes // 256) * 256 if parts > 1 else 0


def thread_lines(state: str) -> list[str]:
    """Where a thread stands: ``number`` of its output, ``mine`` of the ``down`` that share it."""
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
    lines = [*thread_lines(state), *decode("rest", out), "const bool there = rest == 0;"]
    lines += [f"{state} s;", "s.clear();", f"const i64 points = {product(walked)};"]
    lines += ["if (there && points) {", "  const i64 stride = down * g.param[3];"]
    lines.append("  const i64 begin = blockIdx.y * (i64)down + mine;")
    lines += ["  " + line for line in _odometer(walked)]
    lines += ["  " + line for line in _walk(state, rounds_off(aggregation), made, einsum, walked)]
    lines += ["}", "together(f, s, shared, thread, step, mine, down);", "if (there && mine == 0) {"]
    lines += ["  if (g.param[3] > 1) {"]
    lines += [f"    (({state}*)h.workspace)[blockIdx.y * ({product(out)}) + number] = s;", "  } else {"]
    lines += ["    " + line for line in store_state_code(made, einsum, aggregation)]
    return indented([*lines, "  }", "}"])


def _walk(state: str, rounds: bool, made: KernelArguments, einsum: Einsum, walked: list[int]) -> list[str]:
    """A thread's points folded into ``s``; where each is rounded in blocks of partial states, and blocks of those."""
    if not rounds:
        body = [*point(made, einsum, "s"), *_turn(walked)]
        return ["for (i64 n = begin; n < points; n += stride) {", *["  " + line for line in body], "}"]
    body = [*point(made, einsum, "part"), *_turn(walked)]
    return [
        "for (i64 n = begin; n < points;) {",
        f"  {state} block;",
        "  block.clear();",
        f"  for (int b = 0; b < {IN_A_ROW} && n < points; b++) {{",
        f"    {state} part;",
        "    part.clear();",
        f"    for (int k = 0; k < {IN_A_ROW} && n < points; k++, n += stride) {{",
        *["      " + line for line in body],
        "    }",
        "    block.combine(f, part);",
        "  }",
        "  s.combine(f, block);",
        "}",
    ]


def _parts(made: KernelArguments, einsum: Einsum) -> str:
    """The second pass: the parts' states together."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    state, out = states.state_type(aggregation), range(einsum.n_out)
    lines = [*thread_lines(state), *decode("rest", out), "const bool there = rest == 0;"]
    lines += [f"{state} s;", "s.clear();", f"const i64 outputs = {product(out)};", "if (there) {"]
    lines.append("  for (i64 n = mine; n < g.param[3]; n += down)")
    lines += [f"    s.combine(f, (({state}*)h.workspace)[n * outputs + number]);", "}"]
    lines += ["together(f, s, shared, thread, step, mine, down);", "if (there && mine == 0) {"]
    lines += ["  " + line for line in store_state_code(made, einsum, aggregation)]
    return indented([*lines, "}"])


def store_state_code(made: KernelArguments, einsum: Einsum, aggregation: Aggregation, name: str = "s") -> list[str]:
    """Statements that put a tile's state where it belongs: into the result, or to the state so far."""
    if made.mode == "full":
        result = states.finalized(aggregation, name, einsum.aggregated, einsum.dtype)
        return [made.outs[0].store(local, result)]
    return states.accumulate_state(aggregation, name, made.outs, local)


def _odometer(walked: list[int]) -> list[str]:
    """The walked labels' indices at the first point, and what a step adds to each."""
    lines = ["i64 from = begin, by = stride;"]
    for p in reversed(walked):
        lines.append(f"i64 l{p} = from % g.extent[{p}]; from /= g.extent[{p}];")
        lines.append(f"const i64 d{p} = by % g.extent[{p}]; by /= g.extent[{p}];")
    return lines if walked else []


def _turn(walked: list[int]) -> list[str]:
    """One step: digits with carries."""
    lines = []
    for n, p in enumerate(reversed(walked)):
        lines.append(f"l{p} += d{p}{' + carry' * (n > 0)};")
        if n < len(walked) - 1:
            kind = "int carry" if n == 0 else "carry"
            lines.append(f"{kind} = l{p} >= g.extent[{p}]; if (carry) l{p} -= g.extent[{p}];")
    return lines


def point(made: KernelArguments, einsum: Einsum, name: str, skip: str = "break") -> list[str]:
    """Statements that fold one point into state ``name``, if it counts."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    writer = ScalarWriter(lambda s: made.operands[s].load(local), lambda p: f"h.origin[{p}] + l{p}")
    lines = ["do {"]
    for n, key in enumerate(ordered(einsum)):
        value = writer.value(key.value, I64)
        lines += ["  " + line for line in writer.lines]
        writer.lines.clear()
        p = key.label
        lines.append(f"  if (!inside({value}, g.bound[{p}], {place(einsum, n)}, h.status)) {skip};")
        if p < einsum.n_out:
            lines.append(f"  if ({value} != h.origin[{p}] + l{p}) {skip};")
        else:
            lines.append(f"  const i64 l{p} = {value} - h.origin[{p}];")
            lines.append(f"  if (l{p} < 0 || l{p} >= g.extent[{p}]) {skip};")
    value = writer.value(einsum.join, states.value_type(aggregation))
    flat = flat_index(einsum) if aggregation.op in ("argmax", "argmin") else "0"
    return [*lines, *["  " + line for line in writer.lines], f"  {name}.fold(f, {value}, {flat});", "} while (0);"]


def flat_index(einsum: Einsum) -> str:
    """The flat index over the aggregated labels, as the program binds them."""
    text = "(i64)0"
    for p in einsum.aggregated:
        text = f"({text} * g.bound[{p}] + h.origin[{p}] + l{p})"
    return text


def ordered(einsum: Einsum) -> list[Key]:
    """The keys, each after those that it hangs on."""
    left, found = list(einsum.keys), list[Key]()
    while left:
        unknown = {k.label for k in left if k.label >= einsum.n_out}
        ready = [k for k in left if not unknown & (einsum.labels_of(k.value) - {k.label})]
        if not ready:
            raise InternalError("keys hang on each other in a circle")
        found.append(ready[0])
        left.remove(ready[0])
    return found


def place(einsum: Einsum, n: int) -> str:
    """The number in the tile of a point that key ``n`` is looked at: the labels that it does not hang on are 0."""
    key = ordered(einsum)[n]
    behind = einsum.labels_of(key.value)
    text = "(i64)0"
    for p in range(len(einsum.labels)):
        text = f"({text} * ein::max(f, g.extent[{p}], (i64)1)" + (f" + l{p})" if p in behind else ")")
    return text


def _explain(made: KernelArguments, einsum: Einsum) -> str:
    """One thread looks again at the first point where a key is wrong."""
    lines = ["i64 rest = (i64)h.status[1];"]
    for p in reversed(range(len(einsum.labels))):
        lines.append(
            f"i64 l{p} = rest % ein::max(f, g.extent[{p}], (i64)1); rest /= ein::max(f, g.extent[{p}], (i64)1);"
        )
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
    """True where each operand's address is a sum over labels."""
    return all(not isinstance(p, Index) or p.affine for access in einsum.accesses for p in access)
