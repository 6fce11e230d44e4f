"""Draws one equation, in each of the language's forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from einturnip.testing.aggregation import is_rounded
from einturnip.testing.drawing_base import MOST_POINTS, Drawn
from einturnip.testing.drawing_terms import TermDrawer
from einturnip.testing.labels import shown_labels
from einturnip.testing.promotion import Type, kind
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    ColonTerm,
    DrawnStatement,
    FixedTerm,
    FunctionTerm,
    GroupTerm,
    IndexTerm,
    JoinedTerm,
    KeyedTerm,
    Left,
    NumberTerm,
    Position,
    SliceTerm,
)


class DrawnEquation(NamedTuple):
    """A statement without its name, and its shape. ``replaces``: the name that it must have."""

    statement: DrawnStatement
    shape: tuple[int, ...]
    exact: bool
    replaces: str | None = None


class EquationDrawer(TermDrawer):
    """Draws the right side and the left side's labels of one statement."""

    def statement(self) -> DrawnEquation:
        """One equation of any form."""
        forms: list[tuple[str, Callable[[], DrawnEquation | None]]] = [
            ("", lambda: self.equation(self.pick((1, 2, 3, 0)))),
            ("", lambda: self.equation(self.pick((1, 2)))),
            ("", self.einstein),
            ("", lambda: self.equation(0)),
            ("scatters", self.scatter),
            ("slices", self.sliced),
            ("replacements", self.replacement),
            ("concatenation", self.concatenation),
            ("reshaping", self.merge),
            ("functions", self.calling),
        ]
        wanted = [form for feature, form in forms if not feature or feature in self.world.features]
        return self.pick(wanted)() or self.equation(self.pick((1, 0)))

    def equation(self, rank: int) -> DrawnEquation:
        """Labels on the left, usually the axes of some tensor in any order, and a term over them."""
        scope = self.left_scope(rank)
        body = self.number_term(scope, 3) if self.pick((True,) * 5 + (False,)) else self.condition(scope, 2)
        bounds = self.bounds(scope, (body.term,), scope)
        statement = DrawnStatement("", bounds, body.term, hints=self._hints(scope))
        return DrawnEquation(statement, tuple(scope.values()), body.exact)

    def left_scope(self, rank: int) -> dict[str, int]:
        """Labels with their sizes for a left side."""
        scope: dict[str, int] = {}
        shape = self.pick(self._shapes(rank)) if rank else ()
        for size in self.draw(st.permutations(shape)) if shape else (None,) * rank:
            self.new_label(scope, frozenset(scope), size)
        return scope

    def _shapes(self, rank: int) -> list[tuple[int, ...]]:
        """Shapes of readable tensors, and () for any sizes."""
        shapes = [t.shape for t in self.names.values() if t.shape]
        return [*(s for s in shapes if len(s) == rank), *shapes, *shapes, ()]

    def _hints(self, scope: Mapping[str, int]) -> tuple[str, ...]:
        if not self.uses("hints", 3):
            return ()
        tiles = [f"@tile({label} = 2)" for label in scope] + [f"@tile({label} = 2 parts)" for label in scope]
        return (self.pick((*tiles, "@keep", "@recompute")),)

    # --- Einstein's convention --------------------------------------------------------------------------------------

    def einstein(self) -> DrawnEquation | None:
        """A product in which labels missing on the left are summed."""
        scope: dict[str, int] = {}
        body: Drawn | None = None
        for _ in range(self.pick((2, 1, 3))):
            fitting = [x for x in self.tensors() if body is None or self.compatible(body, x)]
            if not fitting:
                break
            factor = self._einstein_access(self.pick(fitting), scope)
            body = factor if body is None else self.node(BinaryTerm("*", body.term, factor.term), body, factor)
        if body is None or math.prod(scope.values()) > 10 * MOST_POINTS:
            return None
        if body.type.dtype != "bool" and self.pick((False, True)):
            body = self.node(BinaryTerm("*", NumberTerm(2), body.term), body)
        left = self.pick_some(shown_labels(body.term))
        bounds = self.bounds({x: scope[x] for x in left}, (body.term,), left)
        if not self.are_sized({x: scope[x] for x in scope if x not in left}, body.term):
            return None
        return DrawnEquation(DrawnStatement("", bounds, body.term), tuple(scope[x] for x in left), body.exact)

    def _einstein_access(self, drawn: Drawn, scope: dict[str, int]) -> Drawn:
        assert isinstance(drawn.term, AccessTerm)
        positions: list[Position] = []
        for size in self.shape(drawn):
            fitting: list[Position] = [x for x, s in scope.items() if s == size]
            pairs = [(x, y) for x, s in scope.items() for y, t in scope.items() if x != y and s + t - 1 == size]
            if pairs and self.uses("indices"):
                a, b = self.pick(pairs)
                positions.append(BinaryTerm("+", IndexTerm(a), IndexTerm(b)))
                continue
            names = (*self.label_names(size), *self.more_names())
            label = self.pick((*fitting, *[x for x in names if x not in scope][:1]))
            scope[label] = size
            positions.append(label)
        return self.node(AccessTerm(drawn.term.name, tuple(positions)), drawn)

    # --- aggregation by key -----------------------------------------------------------------------------------------

    def scatter(self) -> DrawnEquation | None:
        """``Y[k[i]: g, d] = sum[i] X[i, d]``."""
        plain = self.left_scope(self.pick((0, 1)))
        scope, own = dict(plain), list[str]()
        for _ in range(self.pick((1, 2))):
            label = self.new_label(scope, frozenset(scope))
            own += [label] if label else []
        groups = self.pick((2, 3, 1, 4))
        key = self._key(groups, scope, own)
        if key is None:
            return None
        x = self.number_term(scope, 2) if self.pick((True, True, True, False)) else self.condition(scope, 1)
        op = self.pick(self.operators(x))
        terms = (x.term, key.term)
        if not own or not self.are_sized(plain, *terms):
            return None
        exact = not is_rounded(op)
        body = self.node(AggregateTerm(op, self.bounds(scope, terms, own), x.term), x, exact=exact)
        keyed = KeyedTerm(key.term, self.size_term(groups, scope))
        place = self.pick(range(len(plain) + 1))
        left: list[Left] = list(map(BoundTerm, plain))
        shape = list(plain.values())
        left.insert(place, keyed)
        shape.insert(place, groups)
        return DrawnEquation(DrawnStatement("", tuple(left), body.term), tuple(shape), body.exact)

    def _key(self, groups: int, scope: Mapping[str, int], own: list[str]) -> Drawn | None:
        """An integer below ``groups`` that depends on one of the aggregation's labels."""
        known = [x for x in self.tensors() if self.is_below(x, groups) and self.can_access(x, scope)]
        if known and self.pick((True, True, False)):
            found = self.access(self.pick(known), scope, guards=False)
        else:
            found = self.integer(scope)
            found = self.node(BinaryTerm("%", found.term, NumberTerm(groups)), found)
        labels = shown_labels(AccessTerm("", (found.term,)))
        return found if set(labels) & set(own) and set(labels) <= set(scope) else None

    # --- slices -----------------------------------------------------------------------------------------------------

    def sliced(self) -> DrawnEquation | None:
        """``Y[:, j] = X[1:3, j] * V[:2]``: one or two tensors, each with some axes sliced."""
        fitting = [x for x in self.tensors() if any(self.shape(x))]
        if not fitting:
            return None
        slices: list[int] = []
        scope: dict[str, int] = {}
        body = self._sliced_access(self.pick(fitting), slices, scope)
        if body is None:
            return None
        more = self._sliced_access(self.pick(fitting), slices, scope) if self.rarely(1) else None
        if more and self.compatible(body, more):
            op = self.pick("*+") if more.type.dtype != "bool" else "*"
            body = self.node(BinaryTerm(op, body.term, more.term), body, more)
        scope = {x: scope[x] for x in shown_labels(body.term)}
        left: list[Left] = list(map(BoundTerm, self.draw(st.permutations(tuple(scope)))))
        shape = [scope[b.label] for b in left if isinstance(b, BoundTerm)]
        for size in slices:
            place = self.pick(range(self._last_colon(left), len(left) + 1))
            left.insert(place, ColonTerm())
            shape.insert(place, size)
        if math.prod(shape) > MOST_POINTS:
            return None
        return DrawnEquation(DrawnStatement("", tuple(left), body.term), tuple(shape), body.exact)

    def _last_colon(self, left: list[Left]) -> int:
        """The first position for the next colon: after the present ones."""
        return max((k + 1 for k, x in enumerate(left) if isinstance(x, ColonTerm)), default=0)

    def _sliced_access(self, drawn: Drawn, slices: list[int], scope: dict[str, int]) -> Drawn | None:
        """A tensor with slices of the sizes so far, as many as it has axes for, and labels on its other axes."""
        assert isinstance(drawn.term, AccessTerm)
        first, used = not slices, 0
        positions: list[Position] = []
        for size in self.shape(drawn):
            if first and size and self.pick((True, False)) and len(slices) < 2:
                slices.append(self.pick(range(size, 0, -1)))
            if used < len(slices) and slices[used] <= size and (not first or used == len(slices) - 1):
                positions.append(self._slice(size, slices[used]))
                used += 1
                continue
            label = next((x for x in scope if scope[x] == size), None)
            label = label or self.new_label(scope, frozenset(scope), size)
            if label is None:
                return None
            positions.append(label)
        return self.node(AccessTerm(drawn.term.name, tuple(positions)), drawn) if slices else None

    def _slice(self, size: int, length: int) -> SliceTerm:
        start = self.pick(range(size - length + 1))
        stop = None if start + length == size and self.pick((True, False)) else NumberTerm(start + length)
        return SliceTerm(None if start == 0 and self.pick((True, False)) else NumberTerm(start), stop)

    # --- slices replaced --------------------------------------------------------------------------------------------

    def replacement(self, within: frozenset[str] | None = None) -> DrawnEquation | None:
        """``H[t, d] = h[d]``: a tensor with one slice replaced."""
        fitting = [x for x in self.tensors() if self.shape(x) and 0 not in self.shape(x)]
        if within is not None:
            fitting = [x for x in fitting if self.name(x) in within]
        if not fitting:
            return None
        old = self.pick(fitting)
        shape, scope, left = self.shape(old), dict[str, int](), list[Left]()
        fixed = self.pick(range(len(shape)))
        for axis, size in enumerate(shape):
            if axis == fixed:
                left.append(FixedTerm(self.constant(size)))
                continue
            label = self.new_label(scope, frozenset(scope), size)
            if label is None:
                return None
            left.append(BoundTerm(label))
        body = self.number_term(scope, 2)
        if within is not None or self.pick((True, False)):
            body = self.as_type(body, old.type) or old._replace(term=NumberTerm(old.type.dtype == "bool" or 1))
        if "c" in (kind(old.type.dtype), kind(body.type.dtype)) and old.type != body.type:
            return None
        if old.type != body.type and not self.compatible(old, body):
            return None
        indices = tuple(x.label if isinstance(x, BoundTerm) else NumberTerm(0) for x in left)
        if not self.are_sized(scope, body.term, AccessTerm(self.name(old), indices)):
            return None
        statement = DrawnStatement("", tuple(left), body.term)
        return DrawnEquation(statement, shape, old.exact and body.exact, self.name(old))

    def as_type(self, drawn: Drawn, wanted: Type) -> Drawn | None:
        """The term cast to a type; None if that is impossible."""
        if drawn.type == wanted:
            return drawn
        narrowed = kind(drawn.type.dtype) == "c" and kind(wanted.dtype) != "c"
        if wanted.strength != "strong" or narrowed:
            return None
        if kind(drawn.type.dtype) == "f" and kind(wanted.dtype) in "iub" and not drawn.exact:
            return None
        if drawn.type.strength == "python" and kind(wanted.dtype) in "iu" and wanted.dtype != "i64":
            return None  # a literal that does not fit is an error
        return self.node(FunctionTerm(wanted.dtype, (drawn.term,)), drawn)

    # --- concatenated axes -------------------------------------------------------------------------------------------

    def concatenation(self) -> DrawnEquation | None:
        """``Z[i | j, d] = X[i, d] | Y[j, d]``."""
        others = self.left_scope(self.pick((0, 1)))
        parts: list[Drawn] = []
        own: list[BoundTerm] = []
        length, sized = 0, not others
        for _ in range(self.pick((2, 3))):
            scope = dict(others)
            label = self.new_label(scope, frozenset((*scope, *(b.label for b in own))))
            if label is None:
                return None
            body: Drawn | None = self.number_term(scope, 1)
            if body and set(others) & set(shown_labels(body.term)):
                body = body if self.are_sized(others, body.term) else self._anchored(scope)
                sized = True
            if body is None or not all(self._joinable(part, body) for part in parts):
                return None
            parts.append(body)
            own += self.bounds(scope, (body.term,), [label])
            length += scope[label]
        if not sized and not self.are_sized(others):
            return None
        place = self.pick(range(len(others) + 1))
        left: list[Left] = list(map(BoundTerm, others))
        shape = list(others.values())
        left.insert(place, JoinedTerm(tuple(own)))
        shape.insert(place, length)
        statement = DrawnStatement("", tuple(left), parts[0].term, tuple(p.term for p in parts[1:]))
        return DrawnEquation(statement, tuple(shape), all(p.exact for p in parts))

    def _anchored(self, scope: Mapping[str, int]) -> Drawn | None:
        """A tensor with these labels on its axes."""
        wanted = sorted(scope.values())
        fitting = [x for x in self.tensors() if sorted(self.shape(x)) == wanted]
        if not fitting:
            return None
        found, free, labels = self.pick(fitting), dict(scope), []
        for size in self.shape(found):
            labels.append(next(x for x, s in free.items() if s == size))
            del free[labels[-1]]
        return self.node(AccessTerm(self.name(found), tuple(labels)), found)

    def _joinable(self, a: Drawn, b: Drawn) -> bool:
        return a.type == b.type or self.compatible(a, b)

    def merge(self) -> DrawnEquation | None:
        """``Z[(h e), s] = X[s, h, e]``."""
        scope = self.left_scope(self.pick((2, 3)))
        if len(scope) < 2:
            return None
        body: Drawn | None = self.number_term(scope, 2)
        labels = list(scope)
        first = self.pick(range(len(labels) - 1))
        group = labels[first : first + 2]
        if body is None or not self.are_sized({x: scope[x] for x in group}, body.term):
            body = self._anchored(scope)
        if body is None:
            return None
        left: list[Left] = list(self.bounds(scope, (body.term,), scope))
        left[first : first + 2] = [GroupTerm((group[0], group[1]))]
        sizes = list(scope.values())
        sizes[first : first + 2] = [sizes[first] * sizes[first + 1]]
        return DrawnEquation(DrawnStatement("", tuple(left), body.term), tuple(sizes), body.exact)

    # --- functions --------------------------------------------------------------------------------------------------

    def calling(self) -> DrawnEquation | None:
        """``Y[s, e] = f(X[s, d])``, which may introduce labels."""
        fitting = [f for f in self.world.functions if len(f.function.returns) == 1]
        if not fitting:
            return None
        applicable = self.pick(fitting)
        carried = self.carried_scope(applicable, (0,))
        if carried is None or (applicable.made and 0 in carried.values()):
            return None
        scope = dict(carried)
        made = [self.new_label(scope, frozenset(scope), applicable.made[x]) for x in self.made(applicable, 0)]
        call = self.applied(applicable, (0,), carried, frozenset(scope))
        if call is None or None in made:
            return None
        order = self.draw(st.permutations(tuple(scope)))
        shape, sizes = [], iter([applicable.made[x] for x in self.made(applicable, 0)])
        for label in order:
            shape.append(next(sizes) if label in made else scope[label])
        if self._misnamed(order, shape):
            return None
        left = [BoundTerm(x) for x in order]
        if not self.are_sized({x: scope[x] for x in order if x not in made}, call.term):
            return None
        return DrawnEquation(DrawnStatement("", tuple(left), call.term), tuple(shape), call.exact)

    def _misnamed(self, labels: Sequence[str], sizes: Sequence[int]) -> bool:
        """True if a label has the name of a dim of another size."""
        return any(self.sizes.get(x, size) != size for x, size in zip(labels, sizes, strict=True))

    def rebinding(self, name: str) -> DrawnEquation | None:
        """A new version of a tensor with the shape and dtype of the old one."""
        old, scope = self.names[name], dict[str, int]()
        if any(self.new_label(scope, frozenset(scope), size) is None for size in old.shape):
            return None
        body = self.as_type(self.number_term(scope, 2), old.type)
        if body is None:
            return None
        statement = DrawnStatement("", self.bounds(scope, (body.term,), scope), body.term)
        return DrawnEquation(statement, old.shape, old.exact and body.exact, name)
