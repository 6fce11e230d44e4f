"""Elementary functions as polynomials over vectors, which raise floating-point flags only where due.

Ranges are tested on the bits of a number, since comparing floats raises a flag on NaN; nothing is converted to an
integer for the same reason. Arguments are clamped by the minimum of their bits and not by a select: the optimiser may
move later operations into the select and so compute in every lane what the clamp avoids.
tests/kernels/test_native_functions.py measures the largest errors over the range.

Source: argument reduction after Cody and Waite (Software Manual for the Elementary Functions, 1980); series by Taylor.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from einturnip.core import process_resources
from einturnip.kernels.llvm.ir import IrBuilder, IrValue


@dataclass(frozen=True, slots=True)
class _Format:
    """Constants of a floating-point format: its integer type, mantissa bits, and limits of the functions."""

    integer: str
    mantissa: int
    bias: int
    magic: float  # added, it rounds to a whole number
    far: float  # |x| beyond which exp(x) is 0 or infinite for certain
    top: float  # the largest x whose exp is finite
    ln2_high: float
    terms: int  # of exp
    odd_terms: int  # of log
    tiny: float  # the smallest normal number


_LN2 = math.log(2)
_FORMATS = {
    "float": _Format("i32", 23, 127, 1.5 * 2**23, 104.0, 88.72283, 0.693359375, 7, 5, 2.0**-126),
    "double": _Format("i64", 52, 1023, 1.5 * 2**52, 746.0, 709.782712, 0.6931471803691238, 13, 11, 2.0**-1022),
}
_NAN_OR_INFINITE = 0x01 | 0x08 | 0x80  # quiet NaN, +infinity, signalling NaN: arguments that exp returns
_PACKED = {"float": "f", "double": "d"}
_LN2_LOW = {"float": -2.12194440e-4, "double": 1.9082149292705877e-10}

_Polynomial: TypeAlias = "Callable[[MathFunctions, IrValue], IrValue]"
POLYNOMIALS: dict[str, _Polynomial] = {}
"""The methods of ``MathFunctions`` that compute a primitive of ``kernels/expr``, by its name."""


def _polynomial(method: _Polynomial) -> _Polynomial:
    """Enter a method in ``POLYNOMIALS``."""
    POLYNOMIALS[method.__name__] = method
    return method


def scales_in_vectors(kind: str, width: int) -> bool:
    """Return whether single instructions scale by powers of two, and clamp without a flag for NaN."""
    wide = (kind, width) in (("float", 16), ("double", 8))
    return wide and {"avx512f", "avx512dq"} <= process_resources.processor_features()


class MathFunctions:
    """Writes functions of one float type into a function's body."""

    def __init__(self, code: IrBuilder, like: IrValue) -> None:
        self.code, self.kind, self.width = code, like.element, like.width
        self.format = _FORMATS[like.element]

    # --- constants and bits -------------------------------------------------------------------------------------------

    def number(self, value: float) -> IrValue:
        """A constant of the float type."""
        return self.code.constant(value, self.kind, self.width)

    def whole(self, value: int) -> IrValue:
        """A constant of the integer type of the same size."""
        return self.code.constant(value, self.format.integer, self.width)

    def bits(self, x: IrValue) -> IrValue:
        """The bits of a float."""
        return self.code.cast("bitcast", x, self.format.integer)

    def floating(self, bits: IrValue) -> IrValue:
        """The float of these bits."""
        return self.code.cast("bitcast", bits, self.kind)

    def add(self, a: IrValue, b: IrValue) -> IrValue:
        """a + b."""
        return self.code.binary("fadd", a, b)

    def multiply(self, a: IrValue, b: IrValue) -> IrValue:
        """a b."""
        return self.code.binary("fmul", a, b)

    def fused(self, a: IrValue, b: IrValue, c: IrValue) -> IrValue:
        """a b + c with one rounding."""
        return self.code.intrinsic("fma", a, b, c)

    def absolute(self, x: IrValue) -> IrValue:
        """|x|."""
        return self.code.intrinsic("fabs", x)

    def _magnitude(self, x: IrValue) -> IrValue:
        """The bits of |x|: ordered as |x| is, infinity above all numbers, NaN above infinity."""
        return self.bits(self.absolute(x))

    def _bits_of(self, value: float) -> IrValue:
        floating, whole = ("<f", "<i") if self.kind == "float" else ("<d", "<q")
        return self.whole(struct.unpack(whole, struct.pack(floating, value))[0])

    def _above(self, bits: IrValue, value: float) -> IrValue:
        """Return whether bits exceed those of a number, compared as integers: raises no flag."""
        return self.code.compare("icmp sgt", bits, self._bits_of(value))

    def _is_zero(self, x: IrValue) -> IrValue:
        """Return 1.0 where x is 0, else 0.0."""
        code = self.code
        some = code.cast("sitofp", code.intrinsic("umin", self._magnitude(x), self.whole(1)), self.kind)
        return code.binary("fsub", self.number(1), some)

    def _series(self, x: IrValue, coefficients: Sequence[float]) -> IrValue:
        """Evaluate a polynomial by Horner's rule; the last coefficient is of the highest power."""
        value = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self.fused(value, x, self.number(c))
        return value

    # --- exp, expm1, tanh ---------------------------------------------------------------------------------------------

    def _reduced(self, x: IrValue) -> tuple[IrValue, IrValue]:
        """Return n in the low bits of an integer, and r with x = n ln 2 + r, |r| <= ln 2 / 2."""
        shifted, _, r = self._rounded(x)
        return self.code.binary("sub", self.bits(shifted), self._bits_of(self.format.magic)), r

    def _rounded(self, x: IrValue) -> tuple[IrValue, IrValue, IrValue]:
        """Return n + magic, n and r of the same reduction."""
        f = self.format
        shifted = self.fused(x, self.number(1 / _LN2), self.number(f.magic))
        n = self.code.make(f"fsub {shifted}, {self.number(f.magic).name}", self.kind, self.width)
        r = self.fused(n, self.number(-f.ln2_high), x)
        return shifted, n, self.fused(n, self.number(-_LN2_LOW[self.kind]), r)

    def _power_of_two(self, n: IrValue) -> IrValue:
        """2^n for n in the normal range."""
        f = self.format
        biased = self.code.binary("add", n, self.whole(f.bias))
        return self.floating(self.code.binary("shl", biased, self.whole(f.mantissa)))

    def _expm1_near_zero(self, r: IrValue) -> IrValue:
        """exp(r) - 1 for |r| <= ln 2 / 2: r + r^2 (1/2 + r/6 + ...)."""
        tail = self._series(r, _inverse_factorials(2, self.format.terms))
        return self.fused(self.multiply(r, r), tail, r)

    @_polynomial
    def exp(self, x: IrValue) -> IrValue:
        """e^x; overflow is raised where the result is infinite and x is not."""
        if scales_in_vectors(self.kind, self.width):
            return self._exp_scaled(x)
        code, f = self.code, self.format
        magnitude = self._magnitude(x)
        # The argument is clamped to its limits; infinity and NaN are replaced by 0.
        short = code.binary("sub", magnitude, self._bits_of(math.inf))
        finite = code.binary("ashr", short, self.whole(8 * struct.calcsize(_PACKED[self.kind]) - 1))
        clamped = code.intrinsic("umin", magnitude, code.binary("and", finite, self._bits_of(f.far)))
        n, r = self._reduced(code.intrinsic("copysign", self.floating(clamped), x))
        half = code.binary("ashr", n, self.whole(1))
        rest = code.binary("sub", n, half)
        value = self.add(self._expm1_near_zero(r), self.number(1))
        value = self.multiply(self.multiply(value, self._power_of_two(half)), self._power_of_two(rest))
        gone = code.compare("icmp eq", self.bits(x), self._bits_of(-math.inf))
        other = code.select(gone, self.number(0), x)
        return code.select(code.compare("icmp slt", finite, self.whole(0)), value, other)

    def _exp_scaled(self, x: IrValue) -> IrValue:
        """exp where the processor scales vectors by powers of two: half as many instructions."""
        code, kind, width = self.code, self.kind, self.width
        short, lanes = ("ps" if kind == "float" else "pd"), IrValue("", "i1", width).type
        classes = IrValue(str(_NAN_OR_INFINITE), "i32", 0)
        kept = code.call(f"llvm.x86.avx512.fpclass.{short}.512", [x, classes], "i1", width)
        finite = code.binary("xor", kept, code.constant(1, "i1", width))
        mask = code.make(f"bitcast {lanes} {finite.name} to i{width}", f"i{width}", 0)
        rounding, smaller = (
            IrValue("4", "i32", 0),
            IrValue("2", "i32", 0),
        )  # as it is set; of magnitudes, the first's sign
        bounds, zero = self.number(self.format.far), self.number(0)
        # A masked lane raises no flag, and the optimiser does not look into the intrinsic.
        arguments = [x, bounds, smaller, zero, mask, rounding]
        clamped = code.call(f"llvm.x86.avx512.mask.range.{short}.512", arguments, kind, width)
        _, n, r = self._rounded(clamped)
        value = self.add(self._expm1_near_zero(r), self.number(1))
        every = IrValue("-1", f"i{width}", 0)
        arguments = [value, n, zero, every, rounding]
        value = code.call(f"llvm.x86.avx512.mask.scalef.{short}.512", arguments, kind, width)
        return code.select(kept, x, value)

    @_polynomial
    def exp_quiet(self, x: IrValue) -> IrValue:
        """e^x without the overflow flag where the result is infinite."""
        code, bits = self.code, self.bits(x)
        clamped = code.intrinsic("smin", bits, self._bits_of(self.format.top))
        infinite = code.select(
            self._above(bits, self.format.top), self.number(math.inf), self.exp(self.floating(clamped))
        )
        return code.select(self._above(bits, math.inf), x, infinite)

    @_polynomial
    def expm1(self, x: IrValue) -> IrValue:
        """e^x - 1, precise near 0."""
        code, limit = self.code, 30.0 if self.kind == "float" else 60.0
        magnitude = self._magnitude(x)
        clamped = self.floating(code.intrinsic("umin", magnitude, self._bits_of(limit)))
        n, r = self._reduced(code.intrinsic("copysign", clamped, x))
        scale = self._power_of_two(n)
        value = self.fused(scale, self._expm1_near_zero(r), self.add(scale, self.number(-1)))
        return code.select(self._above(magnitude, limit), self.add(self.exp(x), self.number(-1)), value)

    @_polynomial
    def tanh(self, x: IrValue) -> IrValue:
        """-t / (t + 2) with t = expm1(-2 |x|)."""
        t = self.expm1(self.multiply(self.absolute(x), self.number(-2)))
        value = self.code.binary("fdiv", t, self.add(t, self.number(2)))
        return self.code.intrinsic("copysign", value, x)

    # --- log, log1p ---------------------------------------------------------------------------------------------------

    @_polynomial
    def log(self, x: IrValue) -> IrValue:
        """ln x by the series of the inverse hyperbolic tangent; division by zero at 0, invalid below."""
        f, code = self.format, self.code
        bits = self.bits(x)
        positive = code.compare("icmp sgt", bits, self.whole(0))
        good = code.binary("and", positive, code.compare("icmp slt", bits, self._bits_of(math.inf)))
        subnormal = code.compare("icmp slt", bits, self._bits_of(f.tiny))
        exponent = f.bias + f.mantissa - 1  # a subnormal number is its bits times 2^-exponent
        safe = code.select(subnormal, code.cast("sitofp", bits, self.kind), x)
        less = code.select(subnormal, self.whole(exponent), self.whole(0))
        # The exponent is chosen so that the mantissa is between sqrt(1/2) and sqrt(2).
        offset = code.binary("sub", self.bits(safe), self._bits_of(math.sqrt(0.5)))
        n = code.binary("ashr", offset, self.whole(f.mantissa))
        m = self.floating(code.binary("sub", self.bits(safe), code.binary("shl", n, self.whole(f.mantissa))))
        count = code.cast("sitofp", code.binary("sub", n, less), self.kind)
        y = self.add(m, self.number(-1))
        s = code.binary("fdiv", y, self.add(y, self.number(2)))
        square = self.multiply(s, s)
        tail = self._series(square, [2 / (2 * k + 1) for k in range(1, f.odd_terms + 1)])
        # 2 s = y - s y: the rounding of s counts only in a small correction.
        low = self.multiply(count, self.number(_LN2_LOW[self.kind]))
        value = self.fused(s, self.multiply(square, tail), low)
        high = self.multiply(count, self.number(f.ln2_high))
        value = self.add(self.add(self.fused(self._negated(s), y, value), y), high)
        return code.select(good, value, self._log_of_bad(x, good))

    def _log_of_bad(self, x: IrValue, good: IrValue) -> IrValue:
        """-inf at 0, NaN below it; inf and NaN unchanged."""
        code = self.code
        is_zero = self._is_zero(x)
        infinite = code.binary("fdiv", self.number(-1), code.binary("fsub", self.number(1), is_zero))
        root = code.intrinsic("sqrt", code.select(good, self.number(1), x))  # invalid below 0; inf and NaN as they are
        return code.select(code.compare("icmp eq", self._magnitude(x), self.whole(0)), infinite, root)

    @_polynomial
    def log1p(self, x: IrValue) -> IrValue:
        """ln(1 + x), corrected by the rounding error of 1 + x; large arguments need no correction."""
        code = self.code
        clamped = self.floating(code.intrinsic("smin", self.bits(x), self._bits_of(2.0 ** (self.format.mantissa + 9))))
        u = code.make(f"fadd {self.number(1)}, {clamped.name}", self.kind, self.width)
        kept = code.make(f"fsub {u}, {self.number(1).name}", self.kind, self.width)
        lost = code.make(f"fsub {clamped}, {kept.name}", self.kind, self.width)
        divisor = code.make(f"fadd {u}, {self._is_zero(u).name}", self.kind, self.width)
        whole = self.log(code.make(f"fadd {self.number(1)}, {x.name}", self.kind, self.width))
        return self.add(whole, code.make(f"fdiv {lost}, {divisor.name}", self.kind, self.width))

    def _negated(self, x: IrValue) -> IrValue:
        return self.code.make(f"fneg {x}", self.kind, self.width)


@lru_cache(maxsize=8)
def _inverse_factorials(first: int, last: int) -> tuple[float, ...]:
    return tuple(1 / math.factorial(k) for k in range(first, last + 1))
