"""Binds sizes: the value of every ``dim`` and input axis, its origin, and conflicts between sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from einturnip.core.diagnostics import Diagnostic, Span, at_call_site, did_you_mean, render_all, with_source
from einturnip.core.errors import BindError, SourceError
from einturnip.eingraph.build.dependencies import sizes_in
from einturnip.lang.expressions import AxisSize, SizeExpr, SizeLiteral, SizeName, SizeOp
from einturnip.lang.program import InputDef, Loop, Statement, TypedProgram
from einturnip.lang.sizes import size_names, size_text, size_value


@dataclass(frozen=True, slots=True)
class BoundSize:
    """A size with a description of its origin, and its place in the program if it has one."""

    value: int
    origin: str
    span: Span | None = None

    def __str__(self) -> str:
        """Return the size and where it comes from."""
        return f"{self.value} ({self.origin})"


@dataclass
class BoundSizes:
    """The sizes of one program: dims by name, axes by tensor number. Filled while the program is lowered.

    ``loops`` are the variables of the loops being unrolled, with their values; ``unsized`` are tensors of unknown size;
    ``statement`` is the place of the statement being lowered; ``names`` are those of tensors that the program lacks.
    """

    program: TypedProgram
    dims: dict[str, BoundSize] = field(default_factory=dict)
    axes: dict[int, tuple[BoundSize, ...]] = field(default_factory=dict)
    loops: dict[str, int] = field(default_factory=dict)
    unsized: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    statement: Span | None = None
    problems: list[Diagnostic] = field(default_factory=list)
    _noted: set[Diagnostic] = field(default_factory=set)

    @property
    def values(self) -> dict[str, int]:
        """The dims and loop variables as plain numbers."""
        return {name: size.value for name, size in self.dims.items()} | self.loops

    def name_of(self, tensor: int) -> str:
        """The name of a tensor."""
        return self.names[tensor] if tensor in self.names else self.program.tensors[tensor].name

    def report(self, code: str, message: str, span: Span, **details: str | tuple[tuple[Span, str], ...]) -> None:
        """Record an error."""
        self._note(Diagnostic(code, message, span, **details))  # type: ignore[arg-type]

    def _note(self, problem: Diagnostic) -> None:
        if self.loops:
            iteration = ", ".join(f"{name} = {value}" for name, value in self.loops.items())
            problem = replace(problem, message=f"{problem.message}, in the iteration {iteration}")
        problem = problem if self.statement is None else at_call_site(problem, self.statement)
        if problem not in self._noted:
            self._noted.add(problem)
            self.problems.append(problem)

    def lines(self, span: Span) -> tuple[str, ...]:
        """The lines of the file that contains a span."""
        return self.program.files.get(span.file, self.program.source)

    def integer(self, expr: SizeExpr) -> int | None:
        """The value of a size expression; None where it is wrong (reported) or depends on an unknown size."""
        match expr:
            case SizeLiteral(value=value):
                return value
            case SizeName(name=name):
                return self.loops[name] if name in self.loops else self.dims[name].value if name in self.dims else None
            case AxisSize(tensor=tensor, axis=axis):
                return self.axes[tensor][axis].value if tensor in self.axes else None
        try:
            return size_value(self._plain(expr), self.values)
        except KeyError:
            return None
        except SourceError as error:
            for problem in error.diagnostics:
                self._note(problem)
            return None

    def integer_quietly(self, expr: SizeExpr) -> int | None:
        """``integer`` without reporting errors."""
        before, self.problems, self._noted = (self.problems, self._noted), [], set()
        try:
            return self.integer(expr)
        finally:
            self.problems, self._noted = before

    def evaluate(self, expr: SizeExpr) -> int | None:
        """``integer``, where the value must not be negative."""
        value = self.integer(expr)
        if value is not None and value < 0:
            self.report("E201", f"size {size_text(expr)} is negative", expr.span, found=str(value))
            return None
        return value

    def _plain(self, expr: SizeExpr) -> SizeExpr:
        """Replace the sizes of axes in an expression by their values."""
        match expr:
            case AxisSize(tensor=tensor, axis=axis, span=span) if tensor in self.axes:
                return SizeLiteral(self.axes[tensor][axis].value, span)
            case SizeOp(arguments=arguments):
                return replace(expr, arguments=tuple(map(self._plain, arguments)))
        return expr

    def rendered(self) -> tuple[Diagnostic, ...]:
        """The errors so far without duplicates, with their source lines.

        A condition of a ``while`` is lowered twice, and what it expects may come from another place.
        """
        files = {span.file: self.lines(span) for p in self.problems for span in (p.span, *(s for s, _ in p.secondary))}
        first = dict[Diagnostic, Diagnostic]()
        for problem in self.problems:
            first.setdefault(replace(problem, expected=""), problem)
        return tuple(with_source(problem, files) for problem in first.values())


def bind_sizes(
    program: TypedProgram, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int], origins: Mapping[str, str]
) -> BoundSizes:
    """Bind every dim that the program needs and the shape of every input.

    Raises:
        BindError: two sources disagree, a size is unbound or negative, a shape has the wrong rank, a name is unknown.
    """
    sizes = BoundSizes(program)
    _take_given(sizes, shapes, dims, origins)
    _check_ranks(sizes, shapes, origins)
    known = -1
    while known != len(sizes.dims):
        known = len(sizes.dims)
        for dim in program.dims.values():
            if dim.definition is not None and (value := sizes.evaluate(dim.definition)) is not None:
                _bind(sizes, dim.name, BoundSize(value, f"dim {dim.name} = {size_text(dim.definition)}", dim.span))
        for tensor in program.inputs:
            for expr, found in _axes_given(tensor, shapes, origins):
                _match_axis(sizes, expr, found)
    _check_axes(sizes, shapes, origins)
    if not sizes.problems:
        _check_bound(sizes)
    if sizes.problems:
        problems = sizes.rendered()
        raise BindError(render_all(problems), problems)
    return sizes


def _take_given(
    sizes: BoundSizes, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int], origins: Mapping[str, str]
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
        sizes.dims[name] = BoundSize(value, origins.get(name, f"the value given for {name}"))


def _check_ranks(sizes: BoundSizes, shapes: Mapping[str, tuple[int, ...]], origins: Mapping[str, str]) -> None:
    for tensor in sizes.program.inputs:
        shape = shapes.get(tensor.name)
        if shape is not None and len(shape) != tensor.rank:
            where = origins.get(tensor.name, tensor.name)
            declared = f"{_axes(tensor.rank)}, [{', '.join(map(size_text, tensor.shape))}]"
            found = f"{_axes(len(shape))}, {list(shape)}{f' ({where})' if where != tensor.name else ''}"
            message = f"input '{tensor.name}' has another number of axes"
            sizes.report("E202", message, tensor.span, expected=declared, found=found)


def _axes(count: int) -> str:
    return f"{count} ax{'i' if count == 1 else 'e'}s"


def _axes_given(
    tensor: InputDef, shapes: Mapping[str, tuple[int, ...]], origins: Mapping[str, str]
) -> Iterator[tuple[SizeExpr, BoundSize]]:
    """Each axis of an input as declared, and as found outside."""
    shape = shapes.get(tensor.name)
    if shape is not None and len(shape) == tensor.rank:
        for axis, (expr, value) in enumerate(zip(tensor.shape, shape, strict=True)):
            where = origins.get(tensor.name, tensor.name)
            file = f", {where}" if where != tensor.name else ""
            yield expr, BoundSize(value, f"axis {axis} of {tensor.name}{file}", expr.span)


def _bind(sizes: BoundSizes, name: str, found: BoundSize) -> None:
    """Bind a dim, or check that it has that size already."""
    bound = sizes.dims.setdefault(name, found)
    if bound.value != found.value:
        span = found.span or bound.span
        assert span is not None
        places = ((bound.span, f"{name} = {bound.value} here"),) if bound.span and bound.span != span else ()
        message = f"size '{name}' is {bound.value} by {bound.origin}, but {found.value} by {found.origin}"
        fixed = bound.span is None and found.origin.startswith("dim ")
        help_text = f"to leave it to each run, declare it without a value: dim {name}" if fixed else ""
        sizes.report("E203", message, span, secondary=places, expected=str(bound), found=str(found), help=help_text)


def _match_axis(sizes: BoundSizes, expr: SizeExpr, found: BoundSize) -> None:
    """Bind the single unknown size in the expression of an axis, if it can be solved for."""
    unknown = [name for name in size_names(expr) if name not in sizes.dims]
    if isinstance(expr, SizeName):
        _bind(sizes, expr.name, found)
    elif len(unknown) == 1 and (value := _solve(expr, found.value, sizes)) is not None:
        sizes.dims[unknown[0]] = BoundSize(value, f"{size_text(expr)} = {found.value}, {found.origin}", expr.span)


def _solve(expr: SizeExpr, value: int, sizes: BoundSizes) -> int | None:
    """Solve ``expr == value`` for its one unknown name, through exact +, - and *.

    Returns None where that is not possible.
    """
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


def _check_axes(sizes: BoundSizes, shapes: Mapping[str, tuple[int, ...]], origins: Mapping[str, str]) -> None:
    """Compare computed axes with the shapes found, and record each input's axes."""
    for tensor in sizes.program.inputs:
        found = dict(enumerate(size for _, size in _axes_given(tensor, shapes, origins)))
        axes = []
        for axis, expr in enumerate(tensor.shape):
            value = sizes.evaluate(expr)
            size = found.get(axis, BoundSize(value or 0, f"axis {axis} of {tensor.name}: {size_text(expr)}", expr.span))
            if value is not None and value != size.value and not isinstance(expr, SizeName):
                known = [f"{n} = {sizes.dims[n]}" for n in size_names(expr) if n in sizes.dims]
                expected = f"{size_text(expr)} = {value}" + (f" with {', '.join(known)}" if known else "")
                message = f"axis {axis} of input '{tensor.name}' has another size"
                sizes.report("E204", message, expr.span, expected=expected, found=str(size))
            axes.append(size)
        sizes.axes[tensor.number] = tuple(axes)


def _check_bound(sizes: BoundSizes) -> None:
    """Report every size that the program uses and nothing binds."""
    known = set(sizes.dims)
    for name, span, place in _uses(sizes.program):
        if name not in known:
            known.add(name)
            value = f'--dim {name}=..., in Python dims={{"{name}": ...}}'
            remedy = f"give {place} a file or an array, or {name} a value: {value}"
            sizes.report("E205", f"size '{name}' has no value", span, help=remedy)


def _uses(program: TypedProgram) -> Iterator[tuple[str, Span, str]]:
    """Yield every mention of a size that must have a value, as (name, place, its owner)."""
    for tensor in program.inputs:
        for expr in tensor.shape:
            yield from ((name, expr.span, tensor.name) for name in size_names(expr))
    for statement, variables in _in_loops(program.statements, frozenset()):
        for leaf, span in sizes_in(statement):
            if isinstance(leaf, SizeName) and leaf.name not in variables:
                yield leaf.name, span, "an input"


def _in_loops(statements: Iterable[Statement], variables: frozenset[str]) -> Iterator[tuple[Statement, frozenset[str]]]:
    """Yield every statement with the variables of its enclosing loops."""
    for statement in statements:
        yield statement, variables
        if isinstance(statement, Loop):
            yield from _in_loops(statement.body, variables | {statement.variable})
