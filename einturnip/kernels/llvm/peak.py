"""What a core's arithmetic gives at most: operations on registers alone, as many in flight as take turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from einturnip.ir.dtypes import DType
from einturnip.kernels.llvm.ir import IrValue, element
from einturnip.kernels.llvm.routine import ZERO, Routine

Operations = Literal["FMA", "min/add"]
OPERATIONS: tuple[Operations, ...] = get_args(Operations)
_CHAINS = 12  # in flight, of each operation of a pair: more than any takes cycles


@dataclass(frozen=True)
class PeakLoop:
    """Code whose argument is an array of i64: how many turns, and the address of a vector that it begins from.

    FMA: products added. min/add: each sum is folded into a least value, as tropical products do.
    """

    operations: Operations
    dtype: DType

    @property
    def width(self) -> int:
        """Elements of a vector, which has 64 bytes."""
        return 64 // self.dtype.itemsize

    @property
    def flops(self) -> int:
        """Of a turn."""
        return 2 * _CHAINS * self.width * (2 if self.operations == "FMA" else 1)


def peak_function(peak: PeakLoop, name: str) -> str:
    """The LLVM IR."""
    f = Routine(name, "words", "", linkage="")
    count = f.word(f["words"], 0)
    place = f.make(f"inttoptr {f.word(f['words'], 1)} to ptr", "ptr", 0)
    start = f.load(place, element(peak.dtype), peak.width)

    def turn(_: IrValue, carried: list[IrValue]) -> list[IrValue]:
        if peak.operations == "FMA":
            return [f.intrinsic("fma", start, start, x) for x in carried]
        sums = [f.binary("fadd", x, start) for x in carried[:_CHAINS]]
        pairs = zip(sums, carried[_CHAINS:], strict=True)
        return [*sums, *(f.select(f.compare("fcmp olt", x, least), x, least) for x, least in pairs)]

    # No two chains begin alike, or they would be one.
    first = [f.binary("fmul", start, f.constant(k + 1, start.element, start.width)) for k in range(2 * _CHAINS)]
    total, *others = f.loop(ZERO, count, 1, first, turn)
    for x in others:
        total = f.binary("fadd", total, x)
    f.store(total, place)
    return "\n".join([f.text, *f.declared]) + "\n"
