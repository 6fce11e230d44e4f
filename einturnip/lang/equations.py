"""One equation: its labels, its expression, its dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einturnip.core.diagnostics import Diagnostic, Span
from einturnip.core.dtypes import BOOL, DTYPES, DType
from einturnip.lang import syntax as s
from einturnip.lang import typing as t
from einturnip.lang.calls import call
from einturnip.lang.labels import DEEPEST, is_product, occurrences, term_of, too_deep
from einturnip.lang.mistakes import not_supported
from einturnip.lang.scope import Definition, Scope, dtype_named
from einturnip.lang.types import (
    Access,
    Equation,
    Expr,
    Input,
    Label,
    LabelNumber,
    SizeExpr,
    SizeName,
    SizeNumber,
    Strength,
)
from einturnip.lang.words import CONSTANTS, RESERVED, describe


def define(scope: Scope, definition: s.Definition, number: int, source: Sequence[str]) -> Equation | None:
    """The equation that a definition means; None, and the problems in ``scope``, where it is wrong."""
    before = len(scope.problems)
    target = definition.targets[0]
    equation = None
    if len(definition.targets) > 1:
        scope.problems.append(not_supported("several results of one function", definition.targets[1].span))
    elif too_deep(definition.value) or any(too_deep(index) for index in target.indices or ()):
        scope.error("E008", f"this nests deeper than {DEEPEST}", definition.value.span, "name a part of it first")
    else:
        elaboration = Elaboration(scope, source)
        labels_fit = elaboration.bind_left(target)
        value = elaboration.value(definition.value)
        if labels_fit and value is not None and len(scope.problems) == before:
            labels, n_out = tuple(elaboration.labels), len(target.indices or ())
            equation = Equation(target.name, number, labels, n_out, value, definition.span)
    for each in definition.targets:
        if each.name not in RESERVED:
            scope.tensors[each.name] = equation
    return equation


class Elaboration:
    """The state of one equation's elaboration. Methods note problems in the scope and then return None."""

    def __init__(self, scope: Scope, source: Sequence[str]) -> None:
        self.scope = scope
        self.source = source
        self.labels: list[Label] = []
        self.bound: dict[str, int] = {}
        self.sized: set[int] = set()
        self.warned: set[int] = set()
        self.comparing = 0

    # -- labels

    def bind_left(self, target: s.Target) -> bool:
        """Bind the labels of the left side; whether it is well formed."""
        scope, name = self.scope, target.name
        fits = scope.usable(name, target.name_span)
        if target.indices is None and name in scope.dims:
            help_text = f"give the scalar another name, such as {name}_"
            scope.conflict(
                "E023",
                f"'{name}' is a size already",
                target.name_span,
                scope.dims[name].span,
                "declared here",
                help_text,
            )
            fits = False
        for index in target.indices or ():
            fits = self._bind_index(index) and fits
        return fits

    def _bind_index(self, index: s.Index) -> bool:
        match index:
            case s.Name(name=name, span=span):
                return self.bind(name, None, span)
            case s.Slice(start=s.Name(name=name, span=span), stop=stop) if stop is not None:
                size = self.scope.size(stop)
                return self.bind(name, size, span) and size is not None
        what = {
            s.Slice: "slices",
            s.Element: "scatter (a key on the left)",
            s.Literal: "writing one slice of a tensor",
            s.Merged: "merging axes",
            s.Rest: "'...'",
            s.Concatenation: "concatenation ('|')",
        }.get(type(index))
        if isinstance(index, s.Slice) and index.start is not None:
            what = "scatter (a key on the left)"
        if what is not None:
            self.scope.problems.append(not_supported(what, index.span))
        else:
            self.scope.error("E034", "the left side of an equation names labels", index.span, expected="a label")
        return False

    def bind(self, name: str, size: SizeExpr | None, span: Span) -> bool:
        """A new label of the equation, in force from here."""
        if not self.scope.usable(name, span):
            return False
        if name in self.bound:
            first = self.labels[self.bound[name]].span
            help_text = "a diagonal can be taken on the right: give one axis another label and compare the two"
            self.scope.conflict(
                "E033", f"label '{name}' stands twice on the left", span, first, "first here", help_text
            )
            return False
        self.bound[name] = self._new_label(name, size, span)
        return True

    def _new_label(self, name: str, size: SizeExpr | None, span: Span) -> int:
        self.labels.append(Label(name, size, name if name in self.scope.dims else None, span))
        return len(self.labels) - 1

    def value(self, node: s.Node) -> Expr | None:
        """The right side, with Einstein's sum where the convention holds."""
        left = dict(self.bound)
        free: dict[str, Span] = {}
        for occurrence in occurrences(node):
            if occurrence.is_index and occurrence.name not in left and not self._is_point(occurrence.name):
                free.setdefault(occurrence.name, occurrence.span)
        free = {name: span for name, span in free.items() if name not in RESERVED}
        if free and not is_product(node, frozenset(left) | frozenset(free)):
            for name, span in free.items():
                self._unbound(name, span, node)
        implied = tuple(self._new_label(name, None, span) for name, span in free.items())
        self.bound.update(zip(free, implied, strict=True))
        result = self.expr(node)
        if result is None:
            return None
        self._check_sizes(range(len(left)), "on the left")
        if implied:
            return self.attempt(lambda: t.aggregate("sum", implied, result, None, node.span, node.span, True))
        return self.attempt(lambda: t.settle(result))

    def _is_point(self, name: str) -> bool:
        """Whether a bare name in an index is an integer scalar, not a label."""
        tensor = self.scope.tensors.get(name)
        return tensor is not None and tensor.rank == 0 and tensor.dtype.is_integer

    def _unbound(self, name: str, span: Span, node: s.Node) -> None:
        term = term_of(node, name)
        text = self._text(term.span)
        help_text = f"say how to aggregate it: sum[{name}] {text}" if text else f"aggregate it: sum[{name}] ..."
        message = f"label '{name}' is neither on the left nor bound by an aggregation"
        self.scope.error("E031", message, span, help_text)

    def _text(self, span: Span) -> str:
        if span.line != span.end_line:
            return ""
        return self.source[span.line - 1][span.column - 1 : span.end_column - 1]

    def _check_sizes(self, numbers: Sequence[int], where: str) -> None:
        for number in numbers:
            label = self.labels[number]
            if label.size is None and label.dim is None and number not in self.sized:
                message = f"label '{label.name}' {where} has no size: no tensor has it as an axis"
                help_text = f"write its size: [{label.name}: n]"
                if any(other.name == label.name and k != number for k, other in enumerate(self.labels)):
                    help_text += f"; the '{label.name}' that an aggregation binds is another label"
                self.scope.error("E032", message, label.span, help_text)

    # -- expressions

    def attempt(self, build: Callable[[], Expr]) -> Expr | None:
        """The expression, or None and the problem noted."""
        try:
            return build()
        except t.TypeProblem as problem:
            self.scope.problems.append(problem.diagnostic)
            return None

    def expr(self, node: s.Node) -> Expr | None:
        """A typed expression."""
        match node:
            case s.Literal(value=value, span=span):
                return t.literal(value, span)
            case s.Name():
                return self._name(node)
            case s.Element():
                return self._element(node)
            case s.Unary():
                return self._unary(node)
            case s.Binary():
                return self._binary(node)
            case s.Chain():
                return self._chain(node)
            case s.Call():
                return call(self, node)
            case s.Aggregation():
                return self._aggregation(node)
            case s.Concatenation(span=span):
                self.scope.problems.append(not_supported("concatenation ('|')", span))
                return None
            case s.Named(name=name, span=span):
                self.scope.error("E043", f"'{name} = ...' is no argument here", span, "write == to compare")
                return None

    def _name(self, node: s.Name) -> Expr | None:
        name, span = node.name, node.span
        scope = self.scope
        if name in self.bound:
            number = self.bound[name]
            self._warn_hidden(name, number, span)
            return LabelNumber(number, span)
        if name in CONSTANTS:
            return t.literal(CONSTANTS[name], span)
        if name in scope.tensors:
            tensor = scope.tensors[name]
            if tensor is None:
                return None
            if tensor.rank and name not in scope.dims:
                self._wrong_rank(tensor, 0, span)
                return None
            if not tensor.rank:
                return Access(tensor.number, (), tensor.dtype, tensor.strength, span)
        if name in scope.dims:
            return SizeNumber(SizeName(name, span), DTYPES["i64"], "number", span)
        if name in scope.broken_dims:
            return None
        if name in RESERVED:
            scope.error("E020", f"'{name}' is {describe(name)}, not a value", span, f"write {name}(...)")
        else:
            scope.unknown("name", name, span, [*self.bound, *scope.known_names()])
        return None

    def _warn_hidden(self, name: str, number: int, span: Span) -> None:
        scope = self.scope
        tensor = scope.tensors.get(name)
        hidden = scope.dims[name].span if name in scope.dims else tensor.span if tensor and not tensor.rank else None
        if hidden is None or self.comparing or number in self.warned:
            return
        self.warned.add(number)
        what = "size" if name in scope.dims else "scalar"
        message = f"'{name}' is the label here, so this computes with its index, not with the {what} '{name}'"
        help_text = f"for the {what}, compute apart: {name}_ = {name}, in a statement where it is no label"
        place = ((hidden, f"the {what} that is hidden"),)
        scope.warnings.append(Diagnostic("W001", message, span, place, help=help_text, severity="warning"))

    def _element(self, node: s.Element) -> Expr | None:
        scope, name = self.scope, node.name
        labels = [self._index(index) for index in node.indices]
        if name not in scope.tensors:
            if name in RESERVED:
                help_text = f"{describe(name)} takes parentheses: {name}(...)"
                scope.error("E020", f"'{name}' is {describe(name)}, not a tensor", node.name_span, help_text)
            elif name in scope.dims:
                scope.error("E020", f"'{name}' is a size, not a tensor", node.name_span)
            else:
                scope.unknown("tensor", name, node.name_span, scope.tensors)
            return None
        tensor = scope.tensors[name]
        if tensor is None or None in labels:
            return None
        if tensor.rank != len(labels):
            self._wrong_rank(tensor, len(labels), node.span)
            self.sized.update(label for label in labels if label is not None)
            return None
        numbers = tuple(label for label in labels if label is not None)
        self.sized.update(numbers)
        strength: Strength = "weak" if tensor.strength == "number" and numbers else tensor.strength
        return Access(tensor.number, numbers, tensor.dtype, strength, node.span)

    def _index(self, index: s.Index) -> int | None:
        if isinstance(index, s.Name):
            name, span = index.name, index.span
            if name in self.bound:
                return self.bound[name]
            if self._is_point(name):
                self.scope.problems.append(not_supported(f"the scalar '{name}' as an index", span))
            elif self.scope.usable(name, span):
                self.scope.unknown("label", name, span, self.bound)
            return None
        what = {s.Slice: "slices", s.Merged: "splitting axes", s.Rest: "'...'", s.Concatenation: "'|' in an index"}.get(
            type(index)
        )
        if what is None:
            gathers = isinstance(index, s.Element | s.Call | s.Aggregation)
            what = "gather (a tensor's element as an index)" if gathers else "index arithmetic"
        self.scope.problems.append(not_supported(what, index.span))
        return None

    def _wrong_rank(self, tensor: Definition, found: int, span: Span) -> None:
        axes = f"{tensor.rank} ax{'i' if tensor.rank == 1 else 'e'}s" if tensor.rank else "no axes"
        if isinstance(tensor, Input):
            names = [_axis_name(self._text(size.span), k) for k, size in enumerate(tensor.shape)]
        else:
            names = [label.name for label in tensor.labels[: tensor.n_out]]
        written = f"{tensor.name}[{', '.join(names)}]" if names else tensor.name
        self.scope.problems.append(
            Diagnostic(
                "E030",
                f"'{tensor.name}' has {axes}, but {found or 'none'} {'is' if found == 1 else 'are'} written",
                span,
                secondary=((tensor.span, "defined here"),),
                expected=f"{tensor.rank} labels" if tensor.rank != 1 else "1 label",
                found=str(found),
                help=f"write {written}",
            )
        )

    def _unary(self, node: s.Unary) -> Expr | None:
        a = self.expr(node.argument)
        if a is None:
            return None
        if node.op == "not":
            return self.attempt(lambda: t.logical("not", (a,), node.span))
        if node.op == "+" and a.dtype != BOOL:
            return a
        return self.attempt(lambda: t.negate(a, node.span))

    def _binary(self, node: s.Binary) -> Expr | None:
        a, b = self.expr(node.left), self.expr(node.right)
        if a is None or b is None:
            return None
        if node.op in ("and", "or"):
            return self.attempt(lambda: t.logical(node.op, (a, b), node.span))
        return self.attempt(lambda: t.arithmetic(node.op, a, b, node.op_span, node.span))

    def _chain(self, node: s.Chain) -> Expr | None:
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

    def _aggregation(self, node: s.Aggregation) -> Expr | None:
        outer = dict(self.bound)
        numbers: list[int] = []
        accumulator: DType | None = None
        mine: dict[str, int] = {}
        fine = True
        for bound in node.labels:
            size, dtype, good = self._annotations(bound)
            fine = fine and good and self.scope.usable(bound.name, bound.span)
            if dtype is not None and accumulator is not None:
                self.scope.error("E044", "an aggregation has one accumulator", bound.span)
                fine = False
            accumulator = dtype or accumulator
            if bound.name in mine:
                first = self.labels[mine[bound.name]].span
                message = f"label '{bound.name}' is bound twice"
                self.scope.conflict("E033", message, bound.span, first, "first here", f"delete one '{bound.name}'")
                fine = False
                continue
            name_span = Span(bound.span.file, bound.span.line, bound.span.column, bound.span.line, 0)
            name_span = name_span._replace(end_column=bound.span.column + len(bound.name))
            mine[bound.name] = self._new_label(bound.name, size, name_span)
            numbers.append(mine[bound.name])
        self.bound.update(mine)
        comparing, self.comparing = self.comparing, 0
        body = self.expr(node.body)
        self.comparing = comparing
        self.bound = outer
        if body is None or not fine:
            return None
        self._check_sizes(numbers, f"of '{node.op}'")
        return self.attempt(lambda: t.aggregate(node.op, tuple(numbers), body, accumulator, node.head, node.span))

    def _annotations(self, bound: s.Bound) -> tuple[SizeExpr | None, DType | None, bool]:
        """The size and the accumulator's dtype written after a label, and whether both are right."""
        size: SizeExpr | None = None
        dtype: DType | None = None
        for annotation in bound.annotations:
            if isinstance(annotation, s.Name) and self._means_dtype(annotation.name):
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
        return name in DTYPES or (name not in self.scope.dims and dtype_named(name))


def _comparison(op: str, a: Expr, b: Expr, span: Span) -> Callable[[], Expr]:
    return lambda: t.compare(op, a, b, span)


def _axis_name(text: str, position: int) -> str:
    return text if text.isidentifier() else "ijklmnpq"[position % 8]
