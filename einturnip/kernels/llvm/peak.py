"""A loop that reaches a core's peak arithmetic rate: independent chains of operations on registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from einturnip.ir.dtypes import DType
from einturnip.kernels.llvm.ir import IrValue, element
from einturnip.kernels.llvm.routine import ZERO, Routine, module

Operations = Literal["FMA", "min/add"]
OPERATIONS: tuple[Operations, ...] = get_args(Operations)
_CHAINS = 12  # independent chains of each operation: more than its latency in cycles


@dataclass(frozen=True)
class PeakLoop:
    """Code whose argument is an i64 array: the number of turns, and the address of the initial vector.

    FMA: multiply-add. min/add: each sum is folded into a minimum, as in tropical products.
    """

    operations: Operations
    dtype: DType

    @property
    def width(self) -> int:
        """Elements of a 64-byte vector."""
        return 64 // self.dtype.itemsize

    @property
    def flops(self) -> int:
        """Scalar operations of a turn."""
        return 2 * _CHAINS * self.width * (2 if self.operations == "FMA" else 1)


def peak_function(peak: PeakLoop, name: str) -> str:
    """Return the LLVM IR."""
    f = Routine(name, "words", "", linkage="")
    count = f.word(f["words"], 0)
    place = f.pointer_in(f["words"], 1)
    start = f.load(place, element(peak.dtype), peak.width)

    def turn(_: IrValue, carried: list[IrValue]) -> list[IrValue]:
        if peak.operations == "FMA":
            return [f.intrinsic("fma", start, start, x) for x in carried]
        sums = [f.binary("fadd", x, start) for x in carried[:_CHAINS]]
        pairs = zip(sums, carried[_CHAINS:], strict=True)
        return [*sums, *(f.select(f.compare("fcmp olt", x, least), x, least) for x, least in pairs)]

    # Each chain starts from another value; the compiler would merge equal ones.
    first = [f.binary("fmul", start, f.constant(k + 1, start.element, start.width)) for k in range(2 * _CHAINS)]
    total, *others = f.loop(ZERO, count, 1, first, turn)
    for x in others:
        total = f.binary("fadd", total, x)
    f.store(total, place)
    return module([f])
