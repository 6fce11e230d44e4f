"""Command lists: calls recorded as numbers, and the machine code that runs them in order.

Between two calls made from Python, a thread releases the interpreter lock and takes it again; with several threads,
each waits for the others. One call that runs a hundred commands does this once.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from einturnip.kernels.protocol import KernelCall

# Kinds of commands. CALL: call a machine code function with its one argument. FILL: fill words of 4 or 8 bytes. STAMP:
# store the processor's clock. GEMM: of f32 or f64, by a library whose sizes have 32 or 64 bits.
CALL, FILL4, FILL8, GEMM, STAMP = 0, 1, 2, 3, 7
KINDS = {("float32", 4): 3, ("float64", 4): 4, ("float32", 8): 5, ("float64", 8): 6}
# Words of the argument before the table.
HEAD = 4
# Words of a GEMM: their number; alpha and beta.
GEMM_WORDS, SCALARS = 15, (7, 12)


@dataclass(frozen=True, slots=True)
class CommandListExecutor:
    """The code that runs a command list; all its instances are equal.

    Its argument is an array of i64: the address of the table, the number of calls, the next call, and the flags of the
    unit's status word (1 is "invalid") any of which stops it after the call that raised it. The table has (kind,
    address of the arguments) for each call.
    """


def entry(function: Any) -> int:
    """Return the address of a function's code."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def kind_of(call: KernelCall) -> int | None:
    """Return the kind of a prepared call as a command; None if the executor cannot make the call."""
    function: Any = call.function
    if function is None or isinstance(call.words, array):
        return None if function is None else CALL
    types: Sequence[Any] = getattr(function, "argtypes", None) or ()
    if len(types) != GEMM_WORDS - 1:
        return None
    name = {ctypes.c_float: "float32", ctypes.c_double: "float64"}.get(types[SCALARS[0] - 1], "")
    return KINDS.get((name, ctypes.sizeof(types[3])))


def words_of(call: KernelCall, kind: int) -> list[int]:
    """Return the argument words of a command: the address of the call's function, then its words."""
    if kind == CALL:
        return [entry(call.function), *call.words]
    name = next(name for (name, _), gemm in KINDS.items() if gemm == kind)
    words = (_bits(word, name) if k in SCALARS else word for k, word in enumerate(call.words, 1))
    return [entry(call.function), *words]


def _bits(value: float, name: str) -> int:
    (word,) = struct.unpack("<i", struct.pack("<f", value)) if name == "float32" else struct.unpack(
        "<q", struct.pack("<d", value))  # fmt: skip
    return int(word)


def command_list_ir(name: str) -> str:
    """Return its LLVM IR."""
    cases = [(CALL, "band"), (FILL4, "fill4"), (FILL8, "fill8"), (STAMP, "stamp")]
    cases += [(kind, f"gemm{kind}") for kind in KINDS.values()]
    switch = " ".join(f"i64 {kind}, label %{block}" for kind, block in cases)
    bodies = [_call(), _stamp(), _fill("fill4", "i32"), _fill("fill8", "i64")]
    bodies += [_gemm(f"gemm{kind}", dtype, size) for (dtype, size), kind in KINDS.items()]
    return f"""
declare void @llvm.x86.sse.stmxcsr(ptr)
declare i64 @llvm.readcyclecounter()
define void @{name}(ptr %args) #0 {{
entry:
  %status = alloca i32
  %ntable = load i64, ptr %args
  %table = inttoptr i64 %ntable to ptr
  %pcount = getelementptr i64, ptr %args, i64 1
  %count = load i64, ptr %pcount
  %pnext = getelementptr i64, ptr %args, i64 2
  %start = load i64, ptr %pnext
  %pstops = getelementptr i64, ptr %args, i64 3
  %nstops = load i64, ptr %pstops
  %stops = trunc i64 %nstops to i32
  br label %head
head:
  %i = phi i64 [ %start, %entry ], [ %following, %after ]
  %going = icmp slt i64 %i, %count
  br i1 %going, label %inside, label %done
inside:
  %kindat = mul i64 %i, 2
  %pkind = getelementptr i64, ptr %table, i64 %kindat
  %kind = load i64, ptr %pkind
  %pwhere = getelementptr i64, ptr %pkind, i64 1
  %nwhere = load i64, ptr %pwhere
  %a = inttoptr i64 %nwhere to ptr
  switch i64 %kind, label %after [ {switch} ]
{"".join(bodies)}
after:
  %following = add i64 %i, 1
  call void @llvm.x86.sse.stmxcsr(ptr %status)
  %word = load i32, ptr %status
  %raised = and i32 %word, %stops
  %stop = icmp ne i32 %raised, 0
  br i1 %stop, label %halt, label %head
halt:
  store i64 %following, ptr %pnext
  ret void
done:
  store i64 %count, ptr %pnext
  ret void
}}
"""


def _call() -> str:
    """Call a function. Arguments: its address, then its own."""
    return """
band:
  %bn = load i64, ptr %a
  %bf = inttoptr i64 %bn to ptr
  %ba = getelementptr i64, ptr %a, i64 1
  call void %bf(ptr %ba)
  br label %after
"""


def _stamp() -> str:
    """Store the clock. Arguments: the address of the count."""
    return """
stamp:
  %now = call i64 @llvm.readcyclecounter()
  store i64 %now, ptr %a
  br label %after
"""


def _fill(block: str, kind: str) -> str:
    """Fill words. Arguments: an address, the number of words, and the word."""
    b = block
    value = "  %fill4v = trunc i64 %fill4w to i32" if kind == "i32" else "  %fill8v = add i64 %fill8w, 0"
    return f"""
{b}:
  %{b}n = load i64, ptr %a
  %{b}p = inttoptr i64 %{b}n to ptr
  %{b}pc = getelementptr i64, ptr %a, i64 1
  %{b}c = load i64, ptr %{b}pc
  %{b}pw = getelementptr i64, ptr %a, i64 2
  %{b}w = load i64, ptr %{b}pw
{value}
  %{b}one = insertelement <16 x {kind}> poison, {kind} %{b}v, i64 0
  %{b}all = shufflevector <16 x {kind}> %{b}one, <16 x {kind}> poison, <16 x i32> zeroinitializer
  %{b}rest = urem i64 %{b}c, 16
  %{b}wide = sub i64 %{b}c, %{b}rest
  br label %{b}head
{b}head:
  %{b}i = phi i64 [ 0, %{b} ], [ %{b}j, %{b}body ]
  %{b}more = icmp slt i64 %{b}i, %{b}wide
  br i1 %{b}more, label %{b}body, label %{b}tail
{b}body:
  %{b}at = getelementptr {kind}, ptr %{b}p, i64 %{b}i
  store <16 x {kind}> %{b}all, ptr %{b}at, align 1
  %{b}j = add i64 %{b}i, 16
  br label %{b}head
{b}tail:
  %{b}k = phi i64 [ %{b}wide, %{b}head ], [ %{b}l, %{b}last ]
  %{b}left = icmp slt i64 %{b}k, %{b}c
  br i1 %{b}left, label %{b}last, label %after
{b}last:
  %{b}to = getelementptr {kind}, ptr %{b}p, i64 %{b}k
  store {kind} %{b}v, ptr %{b}to, align 1
  %{b}l = add i64 %{b}k, 1
  br label %{b}tail
"""


def _gemm(block: str, dtype: str, size: int) -> str:
    """Call cblas_?gemm. Arguments: its address, then its own, with alpha and beta by their bits."""
    whole, real = f"i{8 * size}", "float" if dtype == "float32" else "double"
    kinds = ["i32"] * 3 + [whole] * 3 + [real, "ptr", whole, "ptr", whole, real, "ptr", whole]
    lines, passed = [], []
    for k, kind in enumerate(kinds, 1):
        name = f"%{block}x{k}"
        lines.append(f"  {name}p = getelementptr i64, ptr %a, i64 {k}\n  {name}n = load i64, ptr {name}p")
        match kind:
            case "ptr":
                lines.append(f"  {name} = inttoptr i64 {name}n to ptr")
            case "i64":
                lines.append(f"  {name} = add i64 {name}n, 0")
            case "i32":
                lines.append(f"  {name} = trunc i64 {name}n to i32")
            case "double":
                lines.append(f"  {name} = bitcast i64 {name}n to double")
            case _:
                lines.append(f"  {name}t = trunc i64 {name}n to i32\n  {name} = bitcast i32 {name}t to float")
        passed.append(f"{kind} {name}")
    body = "\n".join(lines)
    return f"""
{block}:
  %{block}n = load i64, ptr %a
  %{block}f = inttoptr i64 %{block}n to ptr
{body}
  call void %{block}f({", ".join(passed)})
  br label %after
"""
