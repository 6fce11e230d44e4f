"""Draws terms from their leaves up, so that every operator gets operands of types that it accepts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from einturnip.ir.aggregations import AGGREGATIONS, MONOIDS
from einturnip.testing.aggregation import ADDING, is_rounded
from einturnip.testing.drawing_base import MOST_POINTS, Drawn
from einturnip.testing.drawing_calls import CallDrawer
from einturnip.testing.functions import COMPLEX_FUNCTIONS, SMOOTH
from einturnip.testing.labels import children
from einturnip.testing.promotion import Type, common, kind
from einturnip.testing.ranges import is_static
from einturnip.testing.terms import (
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    ComparisonTerm,
    FunctionTerm,
    IndexTerm,
    NumberTerm,
    ParenTerm,
    SizeTerm,
    Term,
    UnaryTerm,
)


def _divides(term: Term) -> bool:
    """True if a term contains a quotient or remainder, which a label or size of 0 may make undefined."""
    return (isinstance(term, BinaryTerm) and term.op in ("//", "%")) or any(map(_divides, children(term)))


class TermDrawer(CallDrawer):
    """Draws terms over the labels in scope."""

    def integer(self, scope: Mapping[str, int]) -> Drawn:
        """Draw an integer term whose value is exact."""
        found = self.number_term(scope, self.pick((0, 1)))
        fits = found.exact and kind(found.type.dtype) in "iu" and not (is_static(found.term) and _divides(found.term))
        return found if fits else self.node(NumberTerm(1))

    def number_term(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        """A term that is not a condition."""
        if fuel <= 0:
            return self._leaf(scope)
        grow = self.pick(
            (self._leaf, *(self._binary, self._aggregate, self._function) * 2, self._where, self._extreme, self._cast)
            if math.prod(scope.values()) * 2 < MOST_POINTS
            else (self._leaf, self._binary, self._function, self._cast)
        )
        drawn: Drawn = grow(scope) if grow == self._leaf else grow(scope, fuel - 1)
        return drawn._replace(term=ParenTerm(drawn.term)) if self.pick((False,) * 9 + (True,)) else drawn

    def _leaf(self, scope: Mapping[str, int]) -> Drawn:
        accesses = self._accesses(scope, lambda t: t.dtype != "bool")
        choices: list[Any] = ["access"] * 6 * bool(accesses) + ["number"] + ["index"] * bool(scope)
        hidden = [name for name in (*self.counts, *self.sizes) if name not in scope]
        called = self.call(scope) if self.world.functions and self.rarely(2) else None
        if called and called.type.dtype != "bool":
            return called
        match self.pick(choices + ["size"] * bool(hidden)):
            case "access":
                return self.access(self.pick(accesses), scope)
            case "index":
                return self.node(IndexTerm(self.pick(tuple(scope))))
            case "size":
                return self.node(SizeTerm(self.pick(hidden)))
            case _:
                return self.node(
                    NumberTerm(self.pick((1, 2, 0, 3, 0.5, 1.5, 2.0) if self.exact else (1, 2, 0.5, 0.1, math.pi)))
                )

    def _accesses(self, scope: Mapping[str, int], wanted: Callable[[Type], bool]) -> list[Drawn]:
        """Tensors that can be read at the labels in scope."""
        return [x for x in self.tensors() if wanted(x.type) and self.can_access(x, scope)]

    def _binary(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        a, b = self.number_term(scope, fuel), self.number_term(scope, fuel)
        if not self.compatible(a, b):
            return a
        both = common(a.type, b.type)
        constant = a.type.strength == b.type.strength == "python"
        ops = ["*", "+", "-"] if self.exact or constant else ["/", "*", "+", "-", "/"]
        if not constant and a.exact and b.exact and kind(both.dtype) != "c":
            ops += ["//", "%"]
        if a.type.strength != "python" or isinstance(a.term, NumberTerm | SizeTerm):
            ops += ["^"]
        op = self.pick(ops)
        if op == "^":
            return self.node(BinaryTerm(op, a.term, NumberTerm(self.pick((2, 1, 0, 3)))), a)
        return self.node(BinaryTerm(op, a.term, b.term), a, b, exact=op != "/")

    def _extreme(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        a, b = self.number_term(scope, fuel), self.number_term(scope, fuel)
        if not self.compatible(a, b) or kind(common(a.type, b.type).dtype) in "bc":
            return a
        return self.node(FunctionTerm(self.pick(("max", "min")), (a.term, b.term)), a, b)

    def _where(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        a, b = self.number_term(scope, fuel), self.number_term(scope, fuel)
        if not self.exact and self.pick((False, False, True)):
            b = self.node(UnaryTerm("-", NumberTerm(math.inf)))
        if not self.compatible(a, b):
            return a
        c = self.condition(scope, fuel)
        return self.node(FunctionTerm("where", (c.term, a.term, b.term)), a, b, c)

    def _function(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        x = self.number_term(scope, fuel)
        of = kind(x.type.dtype)
        names = ["-", "abs"]
        names += ["conj", "real", "imag"] if of == "c" else ["relu"]
        if x.exact and of != "c":
            names += ["sign", "floor", "ceil", "round"]
        if not self.exact:
            names = [*(COMPLEX_FUNCTIONS if of == "c" else SMOOTH), *names]
        name = self.pick(sorted(names) if of == "c" else names)
        if name == "-":
            return self.node(UnaryTerm("-", x.term), x)
        return self.node(FunctionTerm(name, (x.term,)), x, exact=name not in SMOOTH)

    def _cast(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        x = self.number_term(scope, fuel)
        if kind(x.type.dtype) == "c":
            return self.node(FunctionTerm("c128", (x.term,)), x)
        # A literal that does not fit is an error.
        whole = ("i64",) if x.type.strength == "python" else ("i64", "i8", "i32", "u8", "i16")
        targets = ("f32", "f64", "f16", "bf16", "c64") + (whole if x.exact else ())
        return self.node(FunctionTerm(self.pick(targets), (x.term,)), x)

    def condition(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        """A term of dtype bool."""
        accesses = self._accesses(scope, lambda t: t.dtype == "bool")
        choices = ["compare", "compare"] + ["access"] * bool(accesses)
        choices += ["and", "or", "not", "any", "all", "chain"] if fuel > 0 else []
        match self.pick(choices):
            case "access":
                return self.access(self.pick(accesses), scope)
            case "not":
                x = self.condition(scope, fuel - 1)
                return self.node(UnaryTerm("not", x.term), x)
            case "and" | "or" as op:
                a, b = self.condition(scope, fuel - 1), self.condition(scope, fuel - 1)
                return self.node(BinaryTerm(op, a.term, b.term), a, b)
            case "any" | "all" as op:
                return self.fold(scope, op, lambda inner: self.condition(inner, fuel - 1))
            case "chain":
                return self._comparison(scope, fuel - 1, 3)
            case _:
                return self._comparison(scope, fuel - 1, 2)

    def _comparison(self, scope: Mapping[str, int], fuel: int, length: int) -> Drawn:
        """A chain of comparisons of exact terms, since rounding may change others."""
        first = self._exact_leaf(scope)
        terms, ops = [first], []
        while len(terms) < length:
            x = self.number_term(scope, fuel) if fuel > 0 else self._leaf(scope)
            x = x if x.exact and self.compatible(terms[-1], x) else terms[-1]
            equality = "c" in (kind(x.type.dtype), kind(terms[-1].type.dtype))
            ops.append(self.pick(("==", "!=") if equality else ("<", "<=", ">", ">=", "==", "!=")))
            terms.append(x)
        return self.node(ComparisonTerm(tuple(ops), tuple(t.term for t in terms)), *terms)

    def _exact_leaf(self, scope: Mapping[str, int]) -> Drawn:
        leaf = self._leaf(scope)
        return leaf if leaf.exact else self.node(NumberTerm(1))

    def _aggregate(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        x = self.fold(scope, None, lambda inner: self._summand(inner, fuel))
        return x if x.type.dtype != "bool" else self.node(FunctionTerm("i64", (x.term,)), x)

    def _summand(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        """The body of an aggregation: usually a number, or a condition to be counted."""
        return self.number_term(scope, fuel) if self.pick((True,) * 5 + (False,)) else self.condition(scope, fuel)

    def fold(self, scope: Mapping[str, int], op: str | None, body: Callable[[Mapping[str, int]], Drawn]) -> Drawn:
        """An aggregation over one or two labels of its own."""
        inner, own = dict(scope), list[str]()
        for _ in range(self.pick((1, 2))):
            label = self.new_label(inner, frozenset(own))
            own += [label] if label else []
        written = self._varying(inner, own)
        outside, self.ragged = self.ragged, self.ragged - frozenset(own) | frozenset(written)
        x = body(inner)
        self.ragged = outside
        if not own:
            return x
        op = op or self.pick(self.operators(x))
        asked = None
        if op in ADDING and len(own) == 1 and kind(x.type.dtype) != "c":
            asked = self.pick((None,) * 5 + ("f64", "f32"))
        bounds = tuple(written.get(b.label, b) for b in self.bounds(inner, (x.term,), own))
        if asked and any(b.size for b in bounds):
            asked = None
        return self.node(AggregateTerm(op, bounds, x.term, asked), x, exact=not is_rounded(op))

    def _varying(self, inner: dict[str, int], own: list[str]) -> dict[str, BoundTerm]:
        """Possibly a loop's variable as the size of the last label, whose range is then the maximum."""
        fitting = [name for name, (_, most) in self.counts.items() if most <= 4]
        if not (own and fitting and own[-1] not in self.sizes and self.rarely(2)):
            return {}
        name, more = self.pick(fitting), self.pick((1, 0))
        inner[own[-1]] = self.counts[name][1] + more
        return {own[-1]: BoundTerm(own[-1], BinaryTerm("+", SizeTerm(name), NumberTerm(1)) if more else SizeTerm(name))}

    def operators(self, x: Drawn) -> list[str]:
        """The aggregations that accept a term."""
        if x.type.dtype == "bool":
            return [name for name, row in MONOIDS.items() if row.combine == "add" and row.result == "wide"]
        taken = ("any",) if kind(x.type.dtype) == "c" else ("any", "real")
        rows = [MONOIDS[op] for op in AGGREGATIONS if MONOIDS[op].values in taken]
        rows = [row for row in rows if x.exact or row.result != "index"]
        return [row.name for row in rows if not (self.exact and is_rounded(row.name))]
