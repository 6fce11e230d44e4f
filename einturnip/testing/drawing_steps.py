"""Draws a sequence of statements: named equations, several results, loops."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from einturnip.testing.drawing_base import Draw, DrawingContext, DrawnTensor
from einturnip.testing.drawing_equations import DrawnEquation, EquationDrawer
from einturnip.testing.kinds import carried_types, statement_type
from einturnip.testing.labels import result_labels
from einturnip.testing.promotion import kind
from einturnip.testing.spelling import statements_of
from einturnip.testing.terms import (
    AccessTerm,
    BinaryTerm,
    BoundTerm,
    CallTerm,
    DrawnLoop,
    DrawnSeveral,
    DrawnStatement,
    NumberTerm,
    Step,
)


class StepDrawer:
    """Draws the statements of a program, a function or a loop.

    ``kept``: names from before a loop, which keep shape and dtype in it. ``fixed``: names that must not be redefined.
    ``depth``: the number of enclosing loops.
    """

    def __init__(
        self,
        draw: Draw,
        world: DrawingContext,
        kept: frozenset[str] = frozenset(),
        fixed: frozenset[str] = frozenset(),
        depth: int = 0,
    ) -> None:
        self.draw, self.world, self.kept, self.fixed, self.depth = draw, world, kept, fixed, depth
        self.names: dict[str, DrawnTensor] = dict(world.names)
        self.steps: list[Step] = []
        self.defined: list[str] = []

    def step(self) -> None:
        """Draw one more statement."""
        forms = ["equation"] * 6
        forms += ["loop"] * 2 * ("loops" in self.world.features and self.depth < 2)
        forms += ["several"] * any(len(f.function.returns) > 1 for f in self.world.functions)
        match self.draw(st.sampled_from(forms)):
            case "loop":
                self._loop()
            case "several":
                self._several()
            case _:
                self._equation()

    def drawer(self) -> EquationDrawer:
        """A drawer over the names defined so far."""
        return EquationDrawer(self.draw, replace(self.world, names=self.names))

    def define(self, name: str, statement: DrawnStatement, shape: tuple[int, ...], exact: bool) -> None:
        """Add a statement under a name."""
        self._note(name, statement, shape, exact)
        self.steps.append(replace(statement, name=name))

    def _note(self, name: str, statement: DrawnStatement, shape: tuple[int, ...], exact: bool) -> None:
        of = statement_type(replace(statement, name=name), {k: t.type for k, t in self.names.items()})
        self.names[name] = DrawnTensor(shape, of, exact)
        self.defined.append(name)

    def _new_name(self, has_axes: bool) -> str:
        return f"{'ZLM'[self.depth] if has_axes else 'slm'[self.depth]}{len(self.steps)}"

    def _equation(self) -> None:
        drawer = self.drawer()
        rebound = self.kept - self.fixed
        drawn: DrawnEquation | None = None
        if rebound and drawer.pick((True, False)):
            name = drawer.pick(sorted(rebound))
            drawn = drawer.rebinding(name)
        elif rebound and drawer.uses("replacements"):
            drawn = drawer.replacement(rebound)
        if drawn is None:
            drawn = drawer.statement()
        if drawn.replaces in self.fixed:
            return
        if drawn.replaces in self.kept:
            of = statement_type(replace(drawn.statement, name=drawn.replaces), drawer.types)
            if of != self.names[drawn.replaces].type:
                return
        new = self._new_name(bool(drawn.statement.bounds))
        others = [name for name in self.names if name not in self.kept | self.fixed]
        self.define(drawn.replaces or drawer.pick((new, new, *others)), *drawn[:3])

    def _several(self) -> None:
        """``A[i, j], b[i] = f(...)``."""
        drawer = self.drawer()
        applicable = drawer.pick([f for f in self.world.functions if len(f.function.returns) > 1])
        results = tuple(range(len(applicable.function.returns)))
        scope = drawer.carried_scope(applicable, results)
        call = drawer.applied(applicable, results, scope) if scope is not None else None
        if scope is None or call is None:
            return
        names, targets, exacts = [f"{'VLM'[self.depth]}{len(self.steps)}{k}" for k in results], [], []
        assert isinstance(call.term, CallTerm)
        for name, result in zip(names, results, strict=True):
            labels = self.draw(st.permutations(result_labels(replace(call.term, result=result))))
            targets.append((name, tuple(map(BoundTerm, labels))))
            exacts.append(call.exact and applicable.exact[result])
        step = DrawnSeveral(tuple(targets), replace(call.term, result=0))
        for statement, exact in zip(statements_of(step), exacts, strict=True):
            shape = tuple(scope[b.label] for b in statement.bounds if isinstance(b, BoundTerm))
            self._note(statement.name, statement, shape, exact)
        self.steps.append(step)

    # --- loops ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        drawer = self.drawer()
        variable = "tr"[self.depth]
        start, stop = drawer.pick(((0, 2), (0, 3), (1, 3), (0, 1), (2, 2)))
        total = self._start_total(drawer) if drawer.pick((False, True)) else None
        outer = {name: t for name, t in self.names.items() if name != total}
        counts = {**self.world.counts, variable: (start, max(start, stop - 1))}
        world = replace(self.world, names=outer, counts=counts)
        indexing = frozenset(name for name, tensor in outer.items() if tensor.below is not None)
        inner = StepDrawer(self.draw, world, frozenset(outer), self.fixed | indexing, self.depth + 1)
        for _ in range(drawer.pick((1, 2))):
            inner.step()
        if total:
            self._add_to_total(total, inner)
        if not inner.steps:
            return
        loop = DrawnLoop(variable, drawer.size_term(start, {}), drawer.size_term(stop, {}), tuple(inner.steps))
        types = carried_types(loop, {name: t.type for name, t in self.names.items()})
        for name in dict.fromkeys(inner.defined):
            if name in self.names:
                exact = inner.names[name].exact and self.names[name].exact
                self.names[name] = DrawnTensor(self.names[name].shape, types[name], exact)
                self.defined.append(name)
        self.steps.append(loop)

    def _start_total(self, drawer: EquationDrawer) -> str:
        """A tensor of literal zeros to which the loop adds, so that its dtype is taken from the sum."""
        scope = drawer.left_scope(drawer.pick((1, 0)))
        statement = DrawnStatement("", drawer.bounds(scope, (NumberTerm(0),), scope), NumberTerm(0))
        name = f"{'wvy'[self.depth]}{len(self.steps)}"
        self.define(name, statement, tuple(scope.values()), exact=True)
        return name

    def _add_to_total(self, name: str, inner: StepDrawer) -> None:
        shape, drawer = self.names[name].shape, inner.drawer()
        scope: dict[str, int] = {}
        if any(drawer.new_label(scope, frozenset(scope), size) is None for size in shape):
            return
        x = drawer.number_term(scope, 2)
        if x.type.strength != "strong" or (kind(x.type.dtype) in "iub" and x.type.dtype != "i64"):
            return
        body = BinaryTerm("+", AccessTerm(name, tuple(scope)), x.term)
        if not drawer.are_sized(scope, x.term) and scope:
            return
        inner.names[name] = self.names[name]
        inner.define(name, DrawnStatement("", tuple(map(BoundTerm, scope)), body), shape, x.exact)
