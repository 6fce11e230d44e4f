"""The algebraic laws of aggregations and scalar functions from which fusion derives regions.

- ``Aggregation.is_linear``: agg(c * x) = c * agg(x) for a c that does not depend on the bound labels.
- ``Aggregation.bound_sign``: x <= max x and x >= min x, for the whole range and thus for any part of it.
- exp(a + b) = exp(a) * exp(b), and likewise for b^x: ``exponent``.
- where(c, x, 0) * y = where(c, x * y, 0), and exp(where(c, x, -inf)) = where(c, exp(x), 0): ``factors``, ``linear``.
- sum (x - m)^2 = sum (x - a)^2 + n (m - a)^2 where a is the mean of the n values x: ``deviation_factor``.

Together: the terms exp(k * (x - max x)) * y, k > 0, are exp(-k * max x) times a factor without the maximum, and none of
them overflows if the maximum of only a part of the range is used. A sum of such terms can therefore begin before the
maximum is known. Likewise a sum of squared deviations can begin before the mean is known.

Source of the last: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances
(1979).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from einturnip.ir.dtypes import BOOL, DType
from einturnip.ir.scalar import Scalar, ScalarCall, ScalarCast, ScalarConst

# Relative tolerance for coefficients that would cancel without rounding errors.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LawFactor:
    """``expr`` to the power 1 or -1; the product is 0 where a condition of ``where`` does not hold."""

    expr: Scalar
    power: int
    where: frozenset[Scalar]


def factors(expr: Scalar, power: int = 1, where: frozenset[Scalar] = frozenset()) -> Iterator[LawFactor]:
    """Split an expression into factors at ``mul``, ``div``, ``neg``, powers, ``where(c, x, 0)`` and casts."""
    match expr:
        case ScalarCall("mul", (a, b), _):
            yield from factors(a, power, where)
            yield from factors(b, power, where)
        case ScalarCall("div", (a, b), _):
            yield from factors(a, power, where)
            yield from factors(b, -power, where)
        case ScalarCall("neg", (a,), dtype):
            yield LawFactor(ScalarConst(-1, dtype), 1, where)
            yield from factors(a, power, where)
        case ScalarCall("pow", (x, ScalarConst(int() | float() as n, _)), _) if n in (2, 3, 4):
            for _ in range(int(n)):
                yield from factors(x, power, where)
        case ScalarCall("where", (c, x, ScalarConst(0, _)), _) if power == 1:
            yield from factors(x, power, where | _conjuncts(c))
        case ScalarCall("where", (c, ScalarConst(0, _), x), _) if power == 1:
            yield from factors(x, power, where | {_negated(c)})
        case ScalarCast(x, dtype) if _widens(x.dtype, dtype):
            yield from factors(x, power, where)
        case _:
            yield LawFactor(expr, power, where)


def exponent(factor: LawFactor) -> tuple[Scalar, float] | None:
    """Return (x, k) where the factor is exp(k * x); None where it is no exponential."""
    match factor.expr:
        case ScalarCall("exp", (x,), dtype) if dtype.is_float:
            return x, float(factor.power)
        case ScalarCall("pow", (ScalarConst(base, _), x), dtype) if (
            dtype.is_float and isinstance(base, float) and base > 0
        ):
            return x, factor.power * math.log(base)
    return None


@dataclass(frozen=True, slots=True)
class LinearTerm:
    """``constant`` + the sum of coefficient * term, and -inf where a condition of ``where`` does not hold."""

    terms: dict[Scalar, float] = field(default_factory=dict)
    where: frozenset[Scalar] = frozenset()
    constant: float = 0.0

    def without(self, other: LinearTerm, times: float) -> LinearTerm:
        """``self - times * other`` without cancelled terms, under the conditions of ``self``."""
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            have = terms.pop(term, 0.0)
            left = have - times * coefficient
            if abs(left) > _ROUNDING * (abs(have) + abs(times * coefficient)):
                terms[term] = left
        return LinearTerm(terms, self.where, self.constant - times * other.constant)


def linear(expr: Scalar, scale: float = 1.0) -> LinearTerm:
    """Expand ``scale * expr`` into a sum at ``+``, ``-``, ``neg``, constant factors, casts and masks."""
    match expr:
        case ScalarConst(bool() | int() | float() as value, _):
            return LinearTerm(constant=scale * value)
        case ScalarCall("add", (a, b), _):
            return _added(linear(a, scale), linear(b, scale))
        case ScalarCall("sub", (a, b), _):
            return _added(linear(a, scale), linear(b, -scale))
        case ScalarCall("neg", (a,), _):
            return linear(a, -scale)
        case ScalarCall("mul", (a, ScalarConst(int() | float() as c, _)), _) | ScalarCall(
            "mul", (ScalarConst(int() | float() as c, _), a), _
        ):
            return linear(a, scale * c)
        case ScalarCall("div", (a, ScalarConst(int() | float() as c, _)), _) if c != 0:
            return linear(a, scale / c)
        case ScalarCall("where", (c, a, ScalarConst(float() as v, _)), _) if scale * v == -math.inf:
            return _masked(linear(a, scale), _conjuncts(c))
        case ScalarCall("where", (c, ScalarConst(float() as v, _), a), _) if scale * v == -math.inf:
            return _masked(linear(a, scale), frozenset({_negated(c)}))
        case ScalarCast(a, dtype) if _widens(a.dtype, dtype):
            return linear(a, scale)
    return LinearTerm({expr: scale})


def deviation_factor(expr: Scalar, term: Scalar, mean: Scalar) -> float | None:
    """Return the c for which ``expr`` is c * (term - mean); None where it has no such form."""
    form, own = linear(expr), linear(term)
    c = -form.terms.get(mean, 0.0)
    left = form.without(LinearTerm({**own.terms, mean: -1.0}, constant=own.constant), c)
    exact = abs(left.constant) <= _ROUNDING * abs(form.constant)
    return c if c and math.isfinite(c) and exact and not (left.terms or form.where or own.where) else None


def _added(a: LinearTerm, b: LinearTerm) -> LinearTerm:
    total = a.without(b, -1.0)
    return LinearTerm(total.terms, a.where | b.where, total.constant)


def _masked(inner: LinearTerm, where: frozenset[Scalar]) -> LinearTerm:
    return LinearTerm(inner.terms, inner.where | where, inner.constant)


def _conjuncts(condition: Scalar) -> frozenset[Scalar]:
    match condition:
        case ScalarCall("and", (a, b), _):
            return _conjuncts(a) | _conjuncts(b)
    return frozenset({condition})


def _negated(condition: Scalar) -> Scalar:
    return ScalarCall("not", (condition,), BOOL)


def _widens(source: DType, target: DType) -> bool:
    """True for a conversion between real floats without rounding."""
    return source.is_float and target.is_float and (source == target or source.itemsize < target.itemsize)
