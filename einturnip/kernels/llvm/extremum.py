"""Maximum and minimum by the bits of floats, so that NaN operands raise no "invalid" flag."""

from __future__ import annotations

import math
import struct

from einturnip.ir.dtypes import DType
from einturnip.kernels.llvm.folds import State
from einturnip.kernels.llvm.functions import MathFunctions
from einturnip.kernels.llvm.ir import IrBuilder, IrValue


class QuietExtremum:
    """A fold whose state is an integer key in the order of floats, and the bits of the largest magnitude.

    The key of a negative float has all bits but the sign flipped, which orders integers as the floats. A NaN shows in
    the magnitude, where its bits are above infinity's.
    """

    def __init__(self, code: IrBuilder, greatest: bool, dtype: DType) -> None:
        self.code, self.greatest = code, greatest
        self.kind = "float" if dtype.itemsize == 4 else "double"
        self.bits = 8 * dtype.itemsize

    def empty(self, width: int) -> State:
        """Return the state of an empty range."""
        x = self.code.constant(-math.inf if self.greatest else math.inf, self.kind, width)
        return self.state(x)

    def state(self, x: IrValue) -> State:
        """Return the state of one value."""
        f, code = MathFunctions(self.code, x), self.code
        bits = f.bits(x)
        return self._key(bits, f), code.binary("and", bits, f.whole(2 ** (self.bits - 1) - 1))

    def _key(self, bits: IrValue, f: MathFunctions) -> IrValue:
        sign = self.code.binary("ashr", bits, f.whole(self.bits - 1))
        return self.code.binary("xor", bits, self.code.binary("and", sign, f.whole(2 ** (self.bits - 1) - 1)))

    def step(self, state: State, x: IrValue, index: IrValue | None) -> State:
        """Add one value in each lane."""
        return self.combine(state, self.state(x))

    def combine(self, a: State, b: State) -> State:
        """Combine the states of two ranges."""
        key = self.code.intrinsic("smax" if self.greatest else "smin", a[0], b[0])
        return key, self.code.intrinsic("umax", a[1], b[1])

    def value(self, state: State) -> IrValue:
        """Return the extremum as a float; NaN if there was one."""
        code, (key, magnitude) = self.code, state
        f = MathFunctions(code, IrValue("", self.kind, key.width))
        number = f.floating(self._key(key, f))
        limit = f.bits(f.number(math.inf))
        return code.select(code.compare("icmp ugt", magnitude, limit), f.number(math.nan), number)

    def is_empty(self, state: State) -> IrValue:
        """Return whether the state is the identity."""
        code, (key, _) = self.code, state
        f = MathFunctions(code, IrValue("", self.kind, key.width))
        least = struct.unpack("<i", struct.pack("<f", math.inf))[0] if self.bits == 32 else 0x7FF0000000000000
        return code.compare("icmp eq", key, f.whole(-least - 1 if self.greatest else least))
