"""Draws calls of functions that have been drawn."""

from __future__ import annotations

from collections.abc import Mapping

from einturnip.testing.drawing_base import Applicable, Drawn, DrawnTensor
from einturnip.testing.drawing_indices import IndexDrawer
from einturnip.testing.labels import has_rest, shown_labels
from einturnip.testing.promotion import kind
from einturnip.testing.terms import (
    AccessTerm,
    BinaryTerm,
    CallTerm,
    DrawnParameter,
    NumberTerm,
    RestTerm,
    Term,
    UnaryTerm,
)

Labels = dict[str, str]


class CallDrawer(IndexDrawer):
    """Draws calls whose results are read at labels in scope."""

    def call(self, scope: Mapping[str, int]) -> Drawn | None:
        """A call of a function with one result, over labels in scope; None if none fits."""
        fitting = [f for f in self.world.functions if len(f.function.returns) == 1 and not f.made]
        return self.applied(self.pick(fitting), (0,), scope) if fitting else None

    def applied(
        self,
        applicable: Applicable,
        results: tuple[int, ...],
        scope: Mapping[str, int],
        taken: frozenset[str] = frozenset(),
    ) -> Drawn | None:
        """A call of the function, with its results at labels in scope, except those that it introduces.

        ``taken``: further labels of the statement.
        """
        taken |= frozenset(scope)
        scope = {x: size for x, size in scope.items() if x not in self.ragged}
        mapped = self._labels_for(applicable, results, scope, taken)
        if mapped is None:
            return None
        own, rest = mapped
        arguments: dict[str, Drawn] = {}
        for parameter in applicable.function.parameters:
            drawn = self._argument(parameter, applicable, own, rest, scope)
            if drawn is None:
                return None
            arguments[parameter.name] = drawn
        placed, named = self._placed(applicable)
        call = CallTerm(
            applicable.function,
            tuple(arguments[name].term for name in placed),
            tuple((name, arguments[name].term) for name in named),
            results[0],
        )
        return self.node(call, *arguments.values(), exact=applicable.exact[results[0]])

    def _placed(self, applicable: Applicable) -> tuple[list[str], list[str]]:
        """The positional and the named parameters; the others take their default. Numbers come last."""
        names = [p.name for p in applicable.function.parameters]
        first = len(names) - len(applicable.numbers)
        end = first + self.pick(range(len(applicable.numbers), -1, -1))
        default = {p.name: p.default for p in applicable.function.parameters}
        omitted = [x for x in names[end:] if default[x] == applicable.numbers[x] and self.rarely(1)]
        return names[:end], [name for name in names[end:][::-1] if name not in omitted]

    def own_sizes(self, applicable: Applicable) -> dict[str, int]:
        """The size of each label of the parameters."""
        sizes: dict[str, int] = {}
        for parameter in applicable.function.parameters:
            if parameter.labels is None:
                continue
            labels = [x for x in parameter.labels if isinstance(x, str)]
            sizes |= dict(zip(labels, applicable.given[parameter.name].shape, strict=True))
        return sizes

    def made(self, applicable: Applicable, result: int) -> tuple[str, ...]:
        """The labels that the function introduces."""
        own = self.own_sizes(applicable)
        return tuple(x for x in shown_labels(applicable.function.returns[result]) if x not in own)

    def carried_scope(self, applicable: Applicable, results: tuple[int, ...]) -> dict[str, int] | None:
        """New labels for the labels of its arguments that some results return."""
        scope: dict[str, int] = {}
        sizes = self._returned(applicable, results)
        wanted = [*(applicable.rest if self._returns_rest(applicable, results) else ()), *sizes.values()]
        return None if any(self.new_label(scope, frozenset(scope), s) is None for s in wanted) else scope

    def _returned(self, applicable: Applicable, results: tuple[int, ...]) -> dict[str, int]:
        sizes = self.own_sizes(applicable)
        shown = [x for result in results for x in shown_labels(applicable.function.returns[result])]
        return {x: sizes[x] for x in shown if x in sizes}

    def _returns_rest(self, applicable: Applicable, results: tuple[int, ...]) -> bool:
        return any(has_rest(applicable.function.returns[result]) for result in results)

    def _labels_for(
        self, applicable: Applicable, results: tuple[int, ...], scope: Mapping[str, int], taken: frozenset[str]
    ) -> tuple[Labels, tuple[str, ...]] | None:
        """Map each of the function's labels to the caller's; also return those for ``...``."""
        sizes = self.own_sizes(applicable)
        own: Labels = {}
        free = dict(scope)
        rest = []
        for size in applicable.rest:
            label = self._take(free, size)
            if label is None or not self._returns_rest(applicable, results):
                return None
            rest.append(label)
        for mine, size in self._returned(applicable, results).items():
            label = self._take(free, size)
            if label is None:
                return None
            own[mine] = label
        for mine, size in sizes.items():
            if mine not in own:
                own[mine] = self._consumed(mine, size, own, rest, applicable, scope, taken)
        return own, tuple(rest)

    def _take(self, free: dict[str, int], size: int) -> str | None:
        fitting = [x for x, s in free.items() if s == size]
        if not fitting:
            return None
        label: str = self.pick(fitting)
        del free[label]
        return label

    def _consumed(
        self,
        mine: str,
        size: int,
        own: Labels,
        rest: list[str],
        applicable: Applicable,
        scope: Mapping[str, int],
        taken: frozenset[str],
    ) -> str:
        """A label for one that the function binds: a new one, or one already used for another of its labels."""
        together = [p.labels for p in applicable.function.parameters if p.labels is not None and mine in p.labels]
        beside = {own[x] for labels in together for x in labels if isinstance(x, str) and x in own}
        beside |= {x for labels in together if any(isinstance(y, RestTerm) for y in labels) for x in rest}
        again = [x for x in own.values() if scope.get(x) == size and x not in beside]
        if again and self.pick((False, True)):
            return self.pick(again)  # type: ignore[no-any-return]
        taken |= {*own.values(), *rest}
        every = (*self.label_names(size), *self.more_names(), "a", "b", "c")
        names = [x for x in every if x not in taken and self.sizes.get(x, size) == size]
        return self.pick(names)  # type: ignore[no-any-return]

    def _argument(
        self,
        parameter: DrawnParameter,
        applicable: Applicable,
        own: Labels,
        rest: tuple[str, ...],
        scope: Mapping[str, int],
    ) -> Drawn | None:
        if parameter.name in applicable.numbers:
            number = applicable.numbers[parameter.name]
            if isinstance(number, NumberTerm) and type(number.value) is int:
                number = self.size_term(number.value, scope)
            return self.node(number)
        wanted = applicable.given[parameter.name]
        if parameter.labels is None:
            points = [x for x in self.tensors() if x.type == wanted.type and self._is_plain(x, scope)]
            return self._pointwise(self.pick(points), scope) if points else None
        labels = [own[x] for x in parameter.labels if isinstance(x, str)]
        shape = wanted.shape
        if len(labels) < len(parameter.labels):
            labels, shape = [*rest, *labels], (*applicable.rest, *shape)
        fitting = [x for x in self.tensors() if x.type == wanted.type and self.shape(x) == shape]
        if not fitting:
            return None
        return self._shaped(self.pick(fitting), tuple(labels), wanted)

    def _is_plain(self, drawn: Drawn, scope: Mapping[str, int]) -> bool:
        return set(scope.values()).issuperset(self.shape(drawn))

    def _pointwise(self, drawn: Drawn, scope: Mapping[str, int]) -> Drawn:
        assert isinstance(drawn.term, AccessTerm)
        labels = tuple(self.pick([x for x, s in scope.items() if s == size]) for size in self.shape(drawn))
        return self.node(AccessTerm(drawn.term.name, labels), drawn)

    def _shaped(self, drawn: Drawn, labels: tuple[str, ...], wanted: DrawnTensor) -> Drawn:
        """A tensor as an argument: itself, or a term that shows its labels in the same order."""
        assert isinstance(drawn.term, AccessTerm)
        access = self.node(AccessTerm(drawn.term.name, labels), drawn)
        others: list[Term] = []
        if kind(wanted.type.dtype) != "b":
            others = [
                UnaryTerm("-", access.term),
                BinaryTerm("*", access.term, NumberTerm(2)),
                BinaryTerm("+", access.term, access.term),
            ]
        found = self.node(self.pick((access.term, access.term, *others)), access)
        return found if found.type == wanted.type else access
