"""Elaborates one equation: its labels, its expression and its dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from einturnip.core.diagnostics import Diagnostic, Edit, Span
from einturnip.ir.dtypes import BOOL, DTYPES, DType
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate import typing as t
from einturnip.lang.elaborate.calls import call
from einturnip.lang.elaborate.context import Offer, rest_names, rest_of
from einturnip.lang.elaborate.indices import access, scalar, whole_number, wrong_rank
from einturnip.lang.elaborate.scope import NameScope, dtype_named
from einturnip.lang.elaborate.syntax_analysis import bound_around, is_product, is_program_function, occurrences, term_of
from einturnip.lang.expressions import AggregateExpr, Expr, LabelNumber, SizeExpr
from einturnip.lang.keywords import CONSTANTS, RESERVED, describe
from einturnip.lang.program import EquationLabel

Keys = Sequence[tuple[int, s.Node]]
"""The keys on the left: each label, and the expression that it equals."""


class Elaboration:
    """The state of one equation's elaboration. Methods report problems to the scope and then return None."""

    def __init__(
        self, scope: NameScope, labels: list[EquationLabel] | None = None, sized: set[int] | None = None
    ) -> None:
        self.scope = scope
        self.labels: list[EquationLabel] = [] if labels is None else labels
        self.bound: dict[str, int] = {}
        self.left: tuple[str, ...] = ()
        self.sized: set[int] = set() if sized is None else sized
        self.spare: dict[int, SizeExpr] = {}
        self.warned: set[int] = set()
        self.comparing = 0
        self.offer: Offer | None = None
        self.path = ""
        self.rest: int | None = None
        self.root: s.Node | None = None

    def beside(
        self, scope: NameScope, labels: list[EquationLabel] | None = None, sized: set[int] | None = None
    ) -> Elaboration:
        """Create another elaboration: of a separate equation, or over the given labels."""
        other = Elaboration(scope, labels, sized)
        other.spare = self.spare if labels is self.labels else {}
        return other

    # -- labels

    def bind(self, name: str, size: SizeExpr | None, span: Span) -> bool:
        """Bind a new label of the left side, visible from here on."""
        if not self._can_bind(name, span):
            return False
        if name in self.bound:
            first = self.labels[self.bound[name]].span
            help_text = "a diagonal can be taken on the right: give one axis another label and compare the two"
            self.scope.conflict(
                "E033", f"label '{name}' stands twice on the left", span, first, "first here", help_text
            )
            return False
        self.bound[name] = self.new_label(name, size, span)
        self.left = (*self.left, name)
        return True

    def _can_bind(self, name: str, span: Span) -> bool:
        if not self.scope.usable(name, span):
            return False
        constant = self.scope.constants.get(name)
        if constant is None or not constant.is_variable:
            return True
        message = f"'{name}' is a loop's variable, so it is no label in the loop"
        self.scope.conflict("E039", message, span, constant.span, "the loop", f"give the label another name: {name}_")
        return False

    def new_label(self, name: str, size: SizeExpr | None, span: Span) -> int:
        """Create a label that no name denotes yet."""
        scope = self.scope
        dim: str | SizeExpr | None = scope.ambient.get(name)
        if dim is None and name in scope.dims:
            dim = scope.size_of(name, span) if scope.function else name
        self.labels.append(EquationLabel(f"{self.path}{name}", size, dim, span))
        return len(self.labels) - 1

    def label(self, name: str, span: Span) -> int | None:
        """The label that a name denotes; None, without a report, if there is none."""
        number = self.bound.get(name)
        return self.offer(name, span) if number is None and self.offer is not None else number

    def value(self, node: s.Node) -> Expr | None:
        """Elaborate the right side, with an implied sum where Einstein's convention applies."""
        self.root = node
        left = len(self.labels)
        free: dict[str, Span] = {}
        for name, span, place in occurrences(node):
            if place != "index" or name in self.bound:
                continue
            if name == "...":
                self.rest = rest_of(self.scope, node) if self.rest is None else self.rest
                for rest in rest_names(self.rest):
                    if rest not in self.bound:
                        free.setdefault(rest, span)
            elif self.scope.is_label(name):
                free.setdefault(name, span)
        if any(name.startswith("...") for name in free):
            span = next(span for name, span in free.items() if name.startswith("..."))
            self.scope.error("E031", "'...' is not on the left", span, "write '...' on the left as well")
            return None
        if free and not is_product(node, frozenset(self.bound) | frozenset(free)):
            for name, span in free.items():
                self._unbound(name, span, node)
        implied = tuple(self.new_label(name, None, span) for name, span in free.items())
        self.bound.update(zip(free, implied, strict=True))
        result = self.expr(node)
        if result is None:
            return None
        self.check_sizes(range(left), "on the left")
        if implied:
            return self.attempt(lambda: t.aggregate("sum", implied, result, None, node.span, node.span, True))
        return self.attempt(lambda: t.settle(result))

    def scatter(self, node: s.Node, keys: Keys) -> tuple[Expr, tuple[tuple[int, Expr], ...]] | None:
        """Elaborate the right side and the keys of an equation with keys on the left."""
        self.root = node
        scope, left = self.scope, len(self.labels)
        if not isinstance(node, s.AggregationNode):
            names = {o.name for _, key in keys for o in occurrences(key) if o.place == "index"} - set(self.bound)
            text = scope.draft.text(node.span) or "..."
            help_text = f"write sum[{', '.join(sorted(names))}] {text}, or another aggregation" if names else ""
            scope.error("E046", "a key on the left takes one aggregation on the right", node.span, help_text)
            return None
        found: list[Expr | None] = []

        def bind_keys() -> None:
            for _, key in keys:
                found.append(self._key(key, node))

        result = self._aggregation(node, bind_keys)
        if result is None or None in found:
            return None
        self.check_sizes([k for k in range(left) if k not in {label for label, _ in keys}], "on the left")
        labels = [label for label, _ in keys]
        return result, tuple((k, e) for k, e in zip(labels, found, strict=True) if e is not None)

    def _key(self, key: s.Node, node: s.AggregationNode) -> Expr | None:
        free = [o for o in occurrences(key) if o.place == "index" and o.name not in self.bound]
        wrong = [o for o in free if (self.rest is None if o.name == "..." else self.scope.is_label(o.name))]
        for name, span, _ in wrong:
            bound = ", ".join(label.name for label in node.labels)
            in_keys = {o.name for o in occurrences(key)}
            meant = [label.name for label in node.labels if label.name not in in_keys]
            help_text = f"bind it as well: {node.op}[{bound}, {name}] ..."
            if meant:  # may be a typing error
                help_text = f"write {' or '.join(meant)} in its place; or {help_text}"
            message = f"label '{name}' of the key is neither on the left nor bound by the aggregation"
            self.scope.error("E046", message, span, help_text)
        return None if wrong else whole_number(self, key, "a key")

    def _unbound(self, name: str, span: Span, node: s.Node) -> None:
        term = term_of(node, name)
        text = self.scope.draft.text(term.span)
        help_text = f"say how to aggregate it: sum[{name}] {text}" if text else f"aggregate it: sum[{name}] ..."
        edits: tuple[Edit, ...] = ()
        enclosing = bound_around(node, span)
        unused = [label for label, used in enclosing.items() if not used]
        bound = [other for other in {**self.bound, **enclosing} if other.isidentifier() and other != name]
        if len(unused) == 1:
            help_text, edits = f"write {unused[0]}, which the aggregation binds", (Edit(span, unused[0]),)
        elif bound:  # may be a typing error
            help_text += f"; or write another label in its place: {', '.join(bound)}"
        known = self.scope.tensors.get(name)
        if known is not None and known.rank == 0:
            edits = ()
            help_text = (
                f"the scalar '{name}' is {known.dtype}, and an index a whole number: name i64({name}) and use that"
            )
        message = f"label '{name}' is neither on the left nor bound by an aggregation"
        self.scope.problems.append(Diagnostic("E031", message, span, help=help_text, edits=edits))

    def check_sizes(self, numbers: Sequence[int], where: str) -> None:
        """Report labels without a size."""
        named = Counter(label.name for label in self.labels)
        for number in numbers:
            label = self.labels[number]
            if label.size is None and label.dim is None and number not in self.sized:
                if number in self.spare:
                    self.labels[number] = replace(label, dim=self.spare[number])
                    continue
                name = label.name.removeprefix(self.path)
                if not name.isidentifier():
                    message = f"the axis '{name.rstrip('0123456789')}' {where} has no size"
                    self.scope.error("E032", message, label.span, "name the label and write its size: [i: n]")
                    continue
                call_name = None if self.root is None else _called(self.root)
                also = "" if call_name is None else f" and no result of '{call_name}'"
                message = f"label '{name}' {where} has no size: no tensor{also} has it as an axis"
                help_text = f"write its size, as in [{name}: n]"
                if named[label.name] > 1:
                    help_text += f"; the '{name}' that an aggregation binds is another label"
                self.scope.error("E032", message, label.span, help_text)

    # -- expressions

    def attempt(self, build: Callable[[], Expr]) -> Expr | None:
        """Build an expression; None if that fails (reported)."""
        try:
            return build()
        except t.TypeProblem as problem:
            self.scope.problems.append(problem.diagnostic)
            return None

    def expr(self, node: s.Node) -> Expr | None:
        """A typed expression."""
        match node:
            case s.LiteralNode(value=value, span=span):
                return t.literal(value, span)
            case s.NameNode():
                return self._name(node)
            case s.Element():
                return access(self, node)
            case s.UnaryNode():
                return self._unary(node)
            case s.BinaryNode():
                return self._binary(node)
            case s.ComparisonChain():
                return self._chain(node)
            case s.CallNode():
                return call(self, node)
            case s.AggregationNode():
                return self._aggregation(node)
            case s.Concatenation(span=span):
                help_text = (
                    "'|' joins the right sides of one equation, with as many labels on the left: Z[i | j] = X[i]"
                )
                self.scope.error("E038", "'|' cannot stand here", span, f"{help_text} | Y[j]")
                return None
            case s.Named(name=name, span=span):
                self.scope.error("E043", f"'{name} = ...' is no argument here", span, "write == to compare")
                return None

    def _name(self, node: s.NameNode) -> Expr | None:
        name, span = node.name, node.span
        scope = self.scope
        if name in self.bound:
            number = self.bound[name]
            self._warn_hidden(name, number, span)
            return LabelNumber(number, span)
        if name in CONSTANTS:
            return t.literal(CONSTANTS[name], span)
        if name in scope.constants:
            return scope.number_of(name, span)
        if name in scope.tensors:
            known = scope.tensors[name]
            if known is None:
                return None
            if known.rank and name not in scope.dims:
                wrong_rank(self, known, 0, span)
                return None
            if not known.rank:
                return scalar(self, known, span)
        number_expr = scope.number_of(name, span)
        if number_expr is not None or name in scope.broken_dims:
            return number_expr
        if name in RESERVED:
            scope.error("E020", f"'{name}' is {describe(name)}, not a value", span, f"write {name}(...)")
        else:
            labels = [label for label in self.bound if label.isidentifier()]
            scope.unknown("name", name, span, [*labels, *scope.known_names()])
        return None

    def _warn_hidden(self, name: str, number: int, span: Span) -> None:
        scope = self.scope
        known = scope.tensors.get(name)
        hidden = scope.dims[name].span if name in scope.dims else known.span if known and not known.rank else None
        if hidden is None or self.comparing or number in self.warned:
            return
        self.warned.add(number)
        what = "size" if name in scope.dims else "scalar"
        message = f"'{name}' is the label here, so this computes with its index, not with the {what} '{name}'"
        help_text = f"for the {what}, compute apart: {name}_ = {name}, in a statement where it is no label"
        place = ((hidden, f"the {what} that is hidden"),)
        scope.warnings.append(Diagnostic("W001", message, span, place, help=help_text, severity="warning"))

    def _unary(self, node: s.UnaryNode) -> Expr | None:
        a = self.expr(node.argument)
        if a is None:
            return None
        if node.op == "not":
            return self.attempt(lambda: t.logical("not", (a,), node.span))
        if node.op == "+" and a.dtype != BOOL:
            return a
        return self.attempt(lambda: t.negate(a, node.span))

    def _binary(self, node: s.BinaryNode) -> Expr | None:
        a, b = self.expr(node.left), self.expr(node.right)
        if a is None or b is None:
            return None
        if node.op in ("and", "or"):
            return self.attempt(lambda: t.logical(node.op, (a, b), node.span))
        return self.attempt(lambda: t.arithmetic(node.op, a, b, node.op_span, node.span))

    def _chain(self, node: s.ComparisonChain) -> Expr | None:
        self.comparing += 1
        operands = [self.expr(operand) for operand in node.operands]
        self.comparing -= 1
        result: Expr | None = None
        for k, op in enumerate(node.ops):
            a, b = operands[k], operands[k + 1]
            if a is None or b is None:
                return None
            link = self.attempt(_comparison(op, a, b, a.span.to(b.span)))
            if link is None:
                return None
            result = link if result is None else t.logical("and", (result, link), node.operands[0].span.to(b.span))
        return result

    def _aggregation(self, node: s.AggregationNode, inside: Callable[[], None] | None = None) -> AggregateExpr | None:
        """Elaborate ``op[labels] body``; ``inside`` is called while the labels are bound."""
        outer = dict(self.bound)
        numbers: list[int] = []
        accumulator: DType | None = None
        mine: dict[str, int] = {}
        fine = True
        for bound in node.labels:
            size, dtype, good = self._annotations(bound)
            fine = fine and good and self._can_bind(bound.name, bound.span)
            if dtype is not None and accumulator is not None:
                self.scope.error("E044", "an aggregation has one accumulator", bound.span)
                fine = False
            accumulator = dtype or accumulator
            if bound.name in mine:
                first = self.labels[mine[bound.name]].span
                message = f"label '{bound.name}' is bound twice"
                self.scope.conflict("E033", message, bound.span, first, "first here", "bind it once")
                fine = False
                continue
            end = bound.span.column + len(bound.name)
            name_span = bound.span._replace(end_line=bound.span.line, end_column=end)
            mine[bound.name] = self.new_label(bound.name, size, name_span)
            numbers.append(mine[bound.name])
        self.bound.update(mine)
        comparing, self.comparing = self.comparing, 0
        body = self.expr(node.body)
        if inside is not None:
            inside()
        self.comparing = comparing
        for name in mine:
            del self.bound[name]
        self.bound.update((name, outer[name]) for name in mine if name in outer)
        if body is None or not fine:
            return None
        self.check_sizes(numbers, f"of '{node.op}'")
        try:
            return t.aggregate(node.op, tuple(numbers), body, accumulator, node.head, node.span)
        except t.TypeProblem as problem:
            self.scope.problems.append(problem.diagnostic)
            return None

    def _annotations(self, bound: s.BoundLabel) -> tuple[SizeExpr | None, DType | None, bool]:
        """The size and the accumulator's dtype written after a label, and whether both are valid."""
        size: SizeExpr | None = None
        dtype: DType | None = None
        for annotation in bound.annotations:
            if isinstance(annotation, s.NameNode) and self._means_dtype(annotation.name):
                dtype = DTYPES.get(annotation.name)
                if dtype is None:
                    self.scope.unknown_dtype(annotation.name, annotation.span)
                    return None, None, False
            elif size is not None or dtype is not None:
                self.scope.error("E003", "after a label stand its size, then a dtype", annotation.span)
                return None, None, False
            elif (size := self.scope.size(annotation)) is None:
                return None, None, False
        return size, dtype, True

    def _means_dtype(self, name: str) -> bool:
        known = name in self.scope.dims or name in self.scope.constants
        return name in DTYPES or (not known and dtype_named(name))


def _called(root: s.Node) -> str | None:
    """The first function of the program that an expression calls; None if there is none."""
    stack: list[s.Node | s.Index] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, s.CallNode) and is_program_function(node.name):
            return node.name
        stack += reversed(s.parts(node))
    return None


def _comparison(op: str, a: Expr, b: Expr, span: Span) -> Callable[[], Expr]:
    return lambda: t.compare(op, a, b, span)
