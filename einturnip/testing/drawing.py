"""Drawing one equation: typed terms grown from their leaves, so that every operator gets operands that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from einturnip.testing.functions import COMPLEX_FUNCTIONS, SMOOTH
from einturnip.testing.kinds import type_of
from einturnip.testing.labels import standing
from einturnip.testing.promotion import Type, common, kind
from einturnip.testing.terms import (
    Access,
    Aggregate,
    Binary,
    Bound,
    Chain,
    Function,
    Index,
    Number,
    Paren,
    Size,
    Term,
    Unary,
)

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

LABELS = ("i", "j", "k", "l")
MOST_POINTS = 150
"""Points of one scope's label space: the oracle visits each."""


class Tensor(NamedTuple):
    """A name that an equation may read; ``exact`` where no rounding function went into it."""

    shape: tuple[int, ...]
    type: Type
    exact: bool


class Drawn(NamedTuple):
    """A term with what its neighbours must know of it."""

    term: Term
    type: Type
    exact: bool


Equation: TypeAlias = tuple[tuple[Bound, ...], Term, tuple[int, ...], bool]


class TermDrawer:
    """Draws the equations of one program, given its dims and what is defined so far."""

    def __init__(self, draw: Draw, sizes: Mapping[str, int], names: Mapping[str, Tensor], exact: bool) -> None:
        self.draw, self.sizes, self.names, self.exact = draw, sizes, names, exact
        self.types = {name: tensor.type for name, tensor in names.items()}

    def equation(self, rank: int) -> Equation:
        """Labels on the left, mostly the axes of some tensor in any order, and a term over them."""
        scope: dict[str, int] = {}
        shape = self._pick(self._shapes(rank)) if rank else ()
        for size in self.draw(st.permutations(shape)) if shape else (None,) * rank:
            self._new_label(scope, frozenset(scope), size)
        body = self._number(scope, 3) if self._pick((True,) * 5 + (False,)) else self._condition(scope, 2)
        return self._bounds(scope, body.term, frozenset(scope)), body.term, tuple(scope.values()), body.exact

    def einstein(self) -> Equation:
        """A product whose labels missing on the left are summed."""
        scope: dict[str, int] = {}
        body: Drawn | None = None
        for _ in range(self._pick((2, 1, 3))):
            fitting = [x for x in self._tensors() if body is None or self._compatible(body, x)]
            if not fitting:
                break
            factor = self._einstein_access(self._pick(fitting), scope)
            body = factor if body is None else self._node(Binary("*", body.term, factor.term), body, factor)
        if body is None:
            return self.equation(0)
        number = Drawn(Number(2), Type("i64", "python"), exact=True)
        if body.type.dtype != "bool" and self._pick((False, True)):
            body = self._node(Binary("*", number.term, body.term), body)
        used = dict.fromkeys(x for _, _, x in standing(body.term))
        left = self._pick_some(tuple(used))
        return tuple(Bound(x) for x in left), body.term, tuple(scope[x] for x in left), body.exact

    def _einstein_access(self, drawn: Drawn, scope: dict[str, int]) -> Drawn:
        assert isinstance(drawn.term, Access)
        labels = []
        for size in self.names[drawn.term.name].shape:
            fitting = [x for x, s in scope.items() if s == size]
            free = [x for x in self._label_names(size) if x not in scope]
            label = self._pick((*fitting, *free[:1]))
            scope[label] = size
            labels.append(label)
        return drawn._replace(term=Access(drawn.term.name, tuple(labels)))

    # --- small choices ----------------------------------------------------------------------------------------------

    def _pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def _pick_some(self, choices: tuple[str, ...]) -> tuple[str, ...]:
        order = self.draw(st.permutations(choices)) if choices else []
        return tuple(order[: self.draw(st.integers(0, min(3, len(order))))])

    def _label_names(self, size: int) -> tuple[str, ...]:
        """Names a label of that size may have; a dim's name only where the dim is as large. Plenty for einstein."""
        return (*LABELS, *(name for name, s in self.sizes.items() if s == size), "u", "v", "w", "x", "y", "z")

    def _shapes(self, rank: int) -> list[tuple[int, ...]]:
        """Shapes of what could be read, and () for any sizes."""
        shapes = [t.shape for t in self.names.values() if t.shape]
        return [*(s for s in shapes if len(s) == rank), *shapes, *shapes, ()]

    def _new_label(self, scope: dict[str, int], taken: frozenset[str], size: int | None = None) -> str | None:
        """Bind one more label in ``scope``, which may hide an outer one; None where there are points enough."""
        if size is None:
            axes = tuple(size for tensor in self.names.values() for size in tensor.shape)
            size = self._pick(axes + tuple(self.sizes.values()))
        if math.prod(scope.values()) * size > MOST_POINTS:
            return None
        fitting = [x for x in self._label_names(size)[:-6] if x not in taken]
        label: str = self._pick(fitting)
        scope.pop(label, None)
        scope[label] = size
        return label

    def _bounds(self, scope: Mapping[str, int], body: Term, labels: frozenset[str]) -> tuple[Bound, ...]:
        """The labels as written where they are bound, with a size where nothing else says it, and sometimes anyway."""
        alone = {x for _, _, x in standing(body)}
        bounds = []
        for label in (x for x in scope if x in labels):
            known = label in alone or label in self.sizes
            bounds.append(
                Bound(label, None if known and self._pick((True,) * 7 + (False,)) else self._size(scope, label))
            )
        return tuple(bounds)

    def _size(self, scope: Mapping[str, int], label: str) -> Term:
        dims = [name for name, size in self.sizes.items() if size == scope[label] and name not in scope]
        return self._pick((*(Size(name) for name in dims), Number(scope[label])))  # type: ignore[no-any-return]

    def _node(self, term: Term, *parts: Drawn, exact: bool = True) -> Drawn:
        return Drawn(term, type_of(term, self.types), exact and all(p.exact for p in parts))

    def _tensors(self) -> list[Drawn]:
        return [Drawn(Access(name), t.type, t.exact) for name, t in self.names.items()]

    # --- what goes with what ----------------------------------------------------------------------------------------

    def _compatible(self, a: Drawn, b: Drawn) -> bool:
        """Whether an arithmetic operator may join two terms, and the language page says to which dtype."""
        types = (a.type, b.type)
        if "bool" in (a.type.dtype, b.type.dtype):
            return all(t.strength == "strong" for t in types) and a.type.dtype != b.type.dtype
        if "u64" in (a.type.dtype, b.type.dtype) and a.type != b.type:
            return all(kind(t.dtype) not in "i" or t.strength == "python" for t in types) and self._small(a, b)
        return self._small(a, b)

    def _small(self, a: Drawn, b: Drawn) -> bool:
        """False where a Python number might not fit the other's integers, or a soft one's width is in doubt."""
        for weak, strong in ((a, b), (b, a)):
            if strong.type.strength != "strong" or kind(strong.type.dtype) in "fc":
                continue
            if weak.type.strength == "python" and not isinstance(weak.term, Number | Size):
                return False
            if weak.type.strength == "soft" and not isinstance(weak.term, Index) and strong.type.dtype != "i64":
                return False
        return True

    # --- terms ------------------------------------------------------------------------------------------------------

    def _number(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        """A term that is no condition."""
        if fuel <= 0:
            return self._leaf(scope)
        grow = self._pick(
            (self._leaf, *(self._binary, self._aggregate, self._function) * 2, self._where, self._extreme, self._cast)
            if math.prod(scope.values()) * 2 < MOST_POINTS
            else (self._leaf, self._binary, self._function, self._cast)
        )
        drawn: Drawn = grow(scope) if grow == self._leaf else grow(scope, fuel - 1)
        return drawn._replace(term=Paren(drawn.term)) if self._pick((False,) * 9 + (True,)) else drawn

    def _leaf(self, scope: Mapping[str, int]) -> Drawn:
        accesses = self._accesses(scope, lambda t: t.dtype != "bool")
        choices: list[Any] = ["access"] * 6 * bool(accesses) + ["number"] + ["index"] * bool(scope)
        hidden = [name for name in self.sizes if name not in scope]
        match self._pick(choices + ["size"] * bool(hidden)):
            case "access":
                return self._with_labels(self._pick(accesses), scope)
            case "index":
                return self._node(Index(self._pick(tuple(scope))))
            case "size":
                return self._node(Size(self._pick(hidden)))
            case _:
                return self._node(
                    Number(self._pick((1, 2, 0, 3, 0.5, 1.5, 2.0) if self.exact else (1, 2, 0.5, 0.1, math.pi)))
                )

    def _accesses(self, scope: Mapping[str, int], wanted: Callable[[Type], bool]) -> list[Drawn]:
        """Tensors that the labels in scope can stand on."""
        sizes = set(scope.values())
        return [x for x in self._tensors() if wanted(x.type) and sizes.issuperset(self._shape(x))]

    def _shape(self, drawn: Drawn) -> tuple[int, ...]:
        assert isinstance(drawn.term, Access)
        return self.names[drawn.term.name].shape

    def _with_labels(self, drawn: Drawn, scope: Mapping[str, int]) -> Drawn:
        assert isinstance(drawn.term, Access)
        labels = tuple(self._pick([x for x, s in scope.items() if s == size]) for size in self._shape(drawn))
        return drawn._replace(term=Access(drawn.term.name, labels))

    def _binary(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        a, b = self._number(scope, fuel), self._number(scope, fuel)
        if not self._compatible(a, b):
            return a
        both = common(a.type, b.type)
        constant = a.type.strength == b.type.strength == "python"
        ops = ["*", "+", "-"] if self.exact or constant else ["/", "*", "+", "-", "/"]
        if not constant and a.exact and b.exact and kind(both.dtype) != "c":
            ops += ["//", "%"]
        if a.type.strength != "python" or isinstance(a.term, Number | Size):
            ops += ["^"]
        op = self._pick(ops)
        if op == "^":
            return self._node(Binary(op, a.term, Number(self._pick((2, 1, 0, 3)))), a)
        return self._node(Binary(op, a.term, b.term), a, b, exact=op != "/")

    def _extreme(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        a, b = self._number(scope, fuel), self._number(scope, fuel)
        if not self._compatible(a, b) or kind(common(a.type, b.type).dtype) in "bc":
            return a
        return self._node(Function(self._pick(("max", "min")), (a.term, b.term)), a, b)

    def _where(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        a, b = self._number(scope, fuel), self._number(scope, fuel)
        if not self.exact and self._pick((False, False, True)):
            b = self._node(Unary("-", Number(math.inf)))
        if not self._compatible(a, b):
            return a
        c = self._condition(scope, fuel)
        return self._node(Function("where", (c.term, a.term, b.term)), a, b, c)

    def _function(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        x = self._number(scope, fuel)
        of = kind(x.type.dtype)
        names = ["-", "abs"]
        names += ["conj", "real", "imag"] if of == "c" else ["relu"]
        if x.exact and of != "c":
            names += ["sign", "floor", "ceil", "round"]
        if not self.exact:
            names = [*(COMPLEX_FUNCTIONS if of == "c" else SMOOTH), *names]
        name = self._pick(sorted(names) if of == "c" else names)
        if name == "-":
            return self._node(Unary("-", x.term), x)
        return self._node(Function(name, (x.term,)), x, exact=name not in SMOOTH)

    def _cast(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        x = self._number(scope, fuel)
        if kind(x.type.dtype) == "c":
            return self._node(Function("c128", (x.term,)), x)
        targets = ("f32", "f64", "f16", "bf16", "c64") + (("i64", "i8", "i32", "u8", "i16") if x.exact else ())
        return self._node(Function(self._pick(targets), (x.term,)), x)

    def _condition(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        """A term of dtype bool."""
        accesses = self._accesses(scope, lambda t: t.dtype == "bool")
        choices = ["compare", "compare"] + ["access"] * bool(accesses)
        choices += ["and", "or", "not", "any", "all", "chain"] if fuel > 0 else []
        match self._pick(choices):
            case "access":
                return self._with_labels(self._pick(accesses), scope)
            case "not":
                x = self._condition(scope, fuel - 1)
                return self._node(Unary("not", x.term), x)
            case "and" | "or" as op:
                a, b = self._condition(scope, fuel - 1), self._condition(scope, fuel - 1)
                return self._node(Binary(op, a.term, b.term), a, b)
            case "any" | "all" as op:
                return self._fold(scope, op, lambda inner: self._condition(inner, fuel - 1))
            case "chain":
                return self._comparison(scope, fuel - 1, 3)
            case _:
                return self._comparison(scope, fuel - 1, 2)

    def _comparison(self, scope: Mapping[str, int], fuel: int, length: int) -> Drawn:
        """A chain of comparisons of exact terms: what rounding may turn tells nothing."""
        first = self._exact_leaf(scope)
        terms, ops = [first], []
        while len(terms) < length:
            x = self._number(scope, fuel) if fuel > 0 else self._leaf(scope)
            x = x if x.exact and self._compatible(terms[-1], x) else terms[-1]
            equality = "c" in (kind(x.type.dtype), kind(terms[-1].type.dtype))
            ops.append(self._pick(("==", "!=") if equality else ("<", "<=", ">", ">=", "==", "!=")))
            terms.append(x)
        return self._node(Chain(tuple(ops), tuple(t.term for t in terms)), *terms)

    def _exact_leaf(self, scope: Mapping[str, int]) -> Drawn:
        leaf = self._leaf(scope)
        return leaf if leaf.exact else self._node(Number(1))

    def _aggregate(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        x = self._fold(scope, None, lambda inner: self._summand(inner, fuel))
        return x if x.type.dtype != "bool" else self._node(Function("i64", (x.term,)), x)

    def _summand(self, scope: Mapping[str, int], fuel: int) -> Drawn:
        """What an aggregation takes: mostly a number, and a condition to be counted."""
        return self._number(scope, fuel) if self._pick((True,) * 5 + (False,)) else self._condition(scope, fuel)

    def _fold(self, scope: Mapping[str, int], op: str | None, body: Callable[[Mapping[str, int]], Drawn]) -> Drawn:
        """An aggregation over one or two labels of its own."""
        inner, own = dict(scope), list[str]()
        for _ in range(self._pick((1, 2))):
            label = self._new_label(inner, frozenset(own))
            own += [label] if label else []
        x = body(inner)
        if not own:
            return x
        op = op or self._pick(self._operators(x))
        asked = None
        if op in ("sum", "mean") and len(own) == 1 and kind(x.type.dtype) != "c":
            asked = self._pick((None,) * 5 + ("f64", "f32"))
        bounds = self._bounds(inner, x.term, frozenset(own))
        if asked and any(b.size for b in bounds):
            asked = None
        return self._node(Aggregate(op, bounds, x.term, asked), x, exact=op not in ("mean", "logsumexp"))

    def _operators(self, x: Drawn) -> list[str]:
        if x.type.dtype == "bool":
            return ["sum"]
        if kind(x.type.dtype) == "c":
            return ["sum", "prod"] + ["mean"] * (not self.exact)
        ops = ["mean", "logsumexp"] * (not self.exact) + ["sum", "max", "min", "prod"]
        return ops + ["argmax", "argmin"] * x.exact
