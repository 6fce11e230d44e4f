"""Binding sizes: what every ``dim`` and every label is, where that came from, and what disagrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from einturnip.core.diagnostics import Diagnostic, Span, did_you_mean, with_source
from einturnip.core.errors import BindError, SourceError
from einturnip.lang.sizes import size_names, size_text, size_value
from einturnip.lang.types import Access, Equation, Input, Program, SizeExpr, SizeName, SizeNumber, SizeOp, walk


@dataclass(frozen=True, slots=True)
class Size:
    """A size with where it came from, in words, and its place in the program if it has one."""

    value: int
    origin: str
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.value} ({self.origin})"


@dataclass
class Sizes:
    """The sizes of one program: dims by name, axes by tensor number. Grows while the program is read."""

    program: Program
    dims: dict[str, Size] = field(default_factory=dict)
    axes: list[tuple[Size, ...]] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)

    @property
    def values(self) -> dict[str, int]:
        """The dims as plain numbers."""
        return {name: size.value for name, size in self.dims.items()}

    def report(self, code: str, message: str, span: Span, **details: str | tuple[tuple[Span, str], ...]) -> None:
        """Note an error."""
        self.problems.append(Diagnostic(code, message, span, **details))  # type: ignore[arg-type]

    def evaluate(self, expr: SizeExpr) -> int | None:
        """The value of a size expression, or None where it is wrong (noted) or hangs on a size that is unknown."""
        try:
            value = size_value(expr, self.values)
        except KeyError:
            return None
        except SourceError as error:
            self.problems.extend(d for d in error.diagnostics if d not in self.problems)
            return None
        if value < 0:
            self.report("E201", f"size {size_text(expr)} is negative", expr.span, found=str(value))
            return None
        return value

    def rendered(self) -> tuple[Diagnostic, ...]:
        """The errors so far, each once, with the lines that they stand on."""
        return tuple(dict.fromkeys(with_source(p, self.program.source) for p in self.problems))


def bind_sizes(
    program: Program, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int], origins: Mapping[str, str]
) -> Sizes:
    """Every dim that the program needs and the shape of every input.

    Raises:
        BindError: two sources disagree, a size is unbound or negative, a shape has the wrong rank, a name is unknown.
    """
    sizes = Sizes(program)
    _take_given(sizes, shapes, dims, origins)
    _check_ranks(sizes, shapes, origins)
    known = -1
    while known != len(sizes.dims):
        known = len(sizes.dims)
        for dim in program.dims.values():
            if dim.definition is not None and (value := sizes.evaluate(dim.definition)) is not None:
                _bind(sizes, dim.name, Size(value, f"dim {dim.name} = {size_text(dim.definition)}", dim.span))
        for tensor in program.inputs:
            for expr, found in _axes_given(tensor, shapes, origins):
                _match_axis(sizes, expr, found)
    _check_axes(sizes, shapes, origins)
    if not sizes.problems:
        _check_bound(sizes)
    if sizes.problems:
        raise BindError("\n\n".join(d.render() for d in sizes.rendered()))
    return sizes


def _take_given(
    sizes: Sizes, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int], origins: Mapping[str, str]
) -> None:
    """The sizes given from outside, after their names are known to the program."""
    inputs = {tensor.name for tensor in sizes.program.inputs}
    for kind, given, names in (("dim", dims, set(sizes.program.dims)), ("input", shapes, inputs)):
        for name in given:
            if name not in names:
                raise BindError(f"the program has no {kind} '{name}'; {did_you_mean(name, names)}".rstrip("; "))
    for name, value in dims.items():
        if value < 0:
            raise BindError(f"size {name} = {value} is negative")
        sizes.dims[name] = Size(value, origins.get(name, f"--dim {name}={value}"))


def _check_ranks(sizes: Sizes, shapes: Mapping[str, tuple[int, ...]], origins: Mapping[str, str]) -> None:
    for tensor in sizes.program.inputs:
        shape = shapes.get(tensor.name)
        if shape is not None and len(shape) != tensor.rank:
            declared = f"{tensor.rank} axes, [{', '.join(map(size_text, tensor.shape))}]"
            found = f"{len(shape)} axes, {list(shape)} ({origins.get(tensor.name, 'given')})"
            message = f"input '{tensor.name}' has another number of axes"
            sizes.report("E202", message, tensor.span, expected=declared, found=found)


def _axes_given(
    tensor: Input, shapes: Mapping[str, tuple[int, ...]], origins: Mapping[str, str]
) -> Iterator[tuple[SizeExpr, Size]]:
    """Each axis of an input as declared, and as found outside."""
    shape = shapes.get(tensor.name)
    if shape is not None and len(shape) == tensor.rank:
        for axis, (expr, value) in enumerate(zip(tensor.shape, shape, strict=True)):
            where = origins.get(tensor.name)
            yield expr, Size(value, f"axis {axis} of {tensor.name}{f', {where}' if where else ''}", expr.span)


def _bind(sizes: Sizes, name: str, found: Size) -> None:
    """Bind a dim, or check that it has that size already."""
    bound = sizes.dims.setdefault(name, found)
    if bound.value != found.value:
        span = found.span or bound.span
        assert span is not None
        places = ((bound.span, f"{name} = {bound.value} here"),) if bound.span and bound.span != span else ()
        message = f"size '{name}' is {bound.value} by {bound.origin}, but {found.value} by {found.origin}"
        sizes.report("E203", message, span, secondary=places, expected=str(bound), found=str(found))


def _match_axis(sizes: Sizes, expr: SizeExpr, found: Size) -> None:
    """Bind the one unknown size in an axis' expression, where there is just one and it can be told."""
    unknown = [name for name in size_names(expr) if name not in sizes.dims]
    if isinstance(expr, SizeName):
        _bind(sizes, expr.name, found)
    elif len(unknown) == 1 and (value := _solve(expr, found.value, sizes)) is not None:
        sizes.dims[unknown[0]] = Size(value, f"{size_text(expr)} = {found.value}, {found.origin}", expr.span)


def _solve(expr: SizeExpr, value: int, sizes: Sizes) -> int | None:
    """The value of the one unknown name that makes ``expr`` equal ``value``, where + - * lead to it exactly."""
    if isinstance(expr, SizeName):
        return value if value >= 0 else None
    if not isinstance(expr, SizeOp) or len(expr.arguments) != 2:
        return None
    left, right = expr.arguments
    if all(name in sizes.dims for name in size_names(right)):
        inner, known = left, size_value(right, sizes.values)
        rest = {"add": value - known, "sub": value + known}.get(expr.op)
    elif all(name in sizes.dims for name in size_names(left)):
        inner, known = right, size_value(left, sizes.values)
        rest = {"add": value - known, "sub": known - value}.get(expr.op)
    else:
        return None
    if expr.op == "mul" and known and value % known == 0:
        rest = value // known
    return None if rest is None else _solve(inner, rest, sizes)


def _check_axes(sizes: Sizes, shapes: Mapping[str, tuple[int, ...]], origins: Mapping[str, str]) -> None:
    """Hold computed axes against the shapes found, and note each input's axes."""
    for tensor in sizes.program.tensors:
        if not isinstance(tensor, Input):
            sizes.axes.append(())
            continue
        found = dict(enumerate(size for _, size in _axes_given(tensor, shapes, origins)))
        axes = []
        for axis, expr in enumerate(tensor.shape):
            value = sizes.evaluate(expr)
            size = found.get(axis, Size(value or 0, f"axis {axis} of {tensor.name}: {size_text(expr)}", expr.span))
            if value is not None and value != size.value and not isinstance(expr, SizeName):
                known = [f"{n} = {sizes.dims[n]}" for n in size_names(expr) if n in sizes.dims]
                expected = f"{size_text(expr)} = {value}" + (f" with {', '.join(known)}" if known else "")
                message = f"axis {axis} of input '{tensor.name}' has another size"
                sizes.report("E204", message, expr.span, expected=expected, found=str(size))
            axes.append(size)
        sizes.axes.append(tuple(axes))


def _check_bound(sizes: Sizes) -> None:
    """Note every size that the program uses and nothing binds."""
    for name, span, place in _uses(sizes.program):
        if name not in sizes.dims and not any(f"'{name}'" in p.message for p in sizes.problems):
            remedy = f"give {place} a file, or {name} a value: --dim {name}=..."
            sizes.report("E205", f"size '{name}' has no value", span, help=remedy)


def _uses(program: Program) -> Iterator[tuple[str, Span, str]]:
    """Every mention of a size that must have a value: (name, place, what it belongs to)."""
    for tensor in program.inputs:
        for expr in tensor.shape:
            yield from ((name, expr.span, tensor.name) for name in size_names(expr))
    for equation in program.tensors:
        if isinstance(equation, Equation):
            for label in equation.labels:
                names = size_names(label.size) if label.size is not None else ()
                yield from ((name, label.span, "an input") for name in (*names, *([label.dim] if label.dim else [])))
            numbers = (expr for expr in walk(equation.value) if isinstance(expr, SizeNumber))
            yield from ((name, number.span, "an input") for number in numbers for name in size_names(number.size))


def label_sizes(sizes: Sizes, equation: Equation) -> tuple[int, ...]:
    """The size of each label of an equation; what disagrees is noted, and the equation's own axes are recorded."""
    chosen = []
    for number, label in enumerate(equation.labels):
        claims = list(_claims(sizes, equation, number))
        if not claims:
            text = f"label '{label.name}' has no size"
            sizes.report("E206", text, label.span, help=f"write its size where it is bound: [{label.name}: n]")
            claims = [Size(0, "unknown", label.span)]
        first = claims[0]
        for claim in claims[1:]:
            if claim.value != first.value and first.origin != "unknown":
                _disagree(sizes, label.name, first, claim)
        chosen.append(first.value)
    sizes.axes[equation.number] = tuple(
        Size(chosen[p], f"axis {p} of {equation.name}, label '{label.name}' on line {label.span.line}", label.span)
        for p, label in enumerate(equation.labels[: equation.n_out])
    )
    return tuple(chosen)


def _claims(sizes: Sizes, equation: Equation, number: int) -> Iterator[Size]:
    """Everything that fixes a label's size, the most binding first: what is written, the dim of its name, its axes."""
    label = equation.labels[number]
    if label.size is not None and (value := sizes.evaluate(label.size)) is not None:
        yield Size(value, f"written as [{label.name}: {size_text(label.size)}]", label.span)
    if label.dim is not None and label.dim in sizes.dims:
        dim = sizes.dims[label.dim]
        yield Size(dim.value, f"dim {label.dim}: {dim.origin}", label.span)
    for expr in walk(equation.value):
        if isinstance(expr, Access):
            for axis, position in enumerate(expr.indices):
                if position == number:
                    size = sizes.axes[expr.tensor][axis]
                    yield Size(size.value, size.origin, _axis_span(expr.span, axis, sizes.program.source))


def _disagree(sizes: Sizes, label: str, first: Size, claim: Size) -> None:
    assert claim.span is not None
    elsewhere = first.span is not None and first.span != claim.span
    places = ((first.span, f"{first.value} here"),) if elsewhere and first.span is not None else ()
    message = f"label '{label}' has two sizes, {first.value} and {claim.value}"
    sizes.report("E207", message, claim.span, secondary=places, expected=str(first), found=str(claim))


def _axis_span(span: Span, axis: int, source: tuple[str, ...]) -> Span:
    """The place of one index inside an access, read from the text; the whole access where it spans lines."""
    if span.line != span.end_line or not 0 < span.line <= len(source):
        return span
    text = source[span.line - 1]
    start = text.find("[", span.column - 1, span.end_column - 1)
    end = text.rfind("]", span.column - 1, span.end_column - 1)
    indices = text[start + 1 : end].split(",") if 0 <= start < end else []
    if axis >= len(indices):
        return span
    index = indices[axis]
    column = start + 2 + sum(len(i) + 1 for i in indices[:axis]) + len(index) - len(index.lstrip())
    return Span(span.file, span.line, column, span.line, column + len(index.strip()))
