"""Finds the range of each label of an equation, and proves that no static index leaves its axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from einturnip.core.diagnostics import Span
from einturnip.eingraph.build.dependencies import expressions
from einturnip.eingraph.build.sizes import BoundSize, BoundSizes
from einturnip.eingraph.indices import affine, row_major, span
from einturnip.ir.einsum import Index
from einturnip.lang.expressions import AccessExpr, AffineIndex, AxisSize, SplitIndex
from einturnip.lang.program import Equation, EquationLabel
from einturnip.lang.sizes import size_text


@dataclass(frozen=True, slots=True)
class _IndexUse:
    """A static, unguarded index: how one axis of one tensor is read."""

    index: int | AffineIndex | SplitIndex
    tensor: int
    axis: int
    size: BoundSize
    span: Span


def label_sizes(sizes: BoundSizes, equation: Equation) -> tuple[int, ...]:
    """Return the size of each label of an equation; reports conflicts, and records the axes of the result.

    The size of a label is, in this order of preference: the size written with it or its dim's; the size of an axis that
    it indexes alone; the remaining factor of a split axis; the largest that keeps every index in bounds.
    """
    return _Ranges(sizes, equation).found()


class _Ranges:
    """Determines the ranges of one equation's labels, one after another."""

    def __init__(self, sizes: BoundSizes, equation: Equation) -> None:
        self.sizes, self.equation = sizes, equation
        self.uses = list(self._uses())
        self.known: dict[int, BoundSize] = {}

    def found(self) -> tuple[int, ...]:
        """Return the checked ranges."""
        problems = len(self.sizes.problems)
        self._take_fixed()
        self._split()
        while len(self.known) < len(self.equation.labels) and (self._infer_from_limit() or self._split()):
            pass
        self._report_unknown()
        if len(self.sizes.problems) == problems:
            for use in self.uses:
                self._check(use)
        equation, axes = self.equation, []
        for p, label in enumerate(equation.labels[: equation.n_out]):
            origin = f"axis {p} of {equation.name}, label '{label.name}' on line {label.span.line}"
            axes.append(BoundSize(self.known[p].value, origin, label.span))
        self.sizes.axes[equation.number] = tuple(axes)
        return tuple(self.known[p].value for p in range(len(equation.labels)))

    def _uses(self) -> Iterator[_IndexUse]:
        for expr in expressions(self.equation):
            if isinstance(expr, AccessExpr):
                for axis, index in enumerate(expr.indices):
                    if isinstance(index, int | AffineIndex | SplitIndex):
                        place = expr.span if isinstance(index, int) else index.span
                        yield _IndexUse(index, expr.tensor, axis, self.sizes.axes[expr.tensor][axis], place)

    def _take_fixed(self) -> None:
        """Take the sizes that are written, that come from a dim, or from an axis that the label indexes alone."""
        alone: dict[int, list[BoundSize]] = {}
        for use in self.uses:
            if isinstance(use.index, int):
                place = axis_span(use.span, use.axis, self.sizes.lines(use.span))
                alone.setdefault(use.index, []).append(BoundSize(use.size.value, use.size.origin, place))
        for p, label in enumerate(self.equation.labels):
            written, named = self._written(label), self._named(label)
            claims = [c for c in (written, named) if c is not None]
            if written is None or (label.dim is not None and not label.name.startswith(":")):  # a slice may be partial
                claims += alone.get(p, [])
            for claim in claims[1:]:
                if claim.value != claims[0].value:
                    self._disagree(label.name, claims[0], claim)
            if claims:
                self.known[p] = claims[0]

    def _written(self, label: EquationLabel) -> BoundSize | None:
        value = None if label.size is None else self.sizes.evaluate(label.size)
        if value is None or label.size is None:
            return None
        return BoundSize(value, f"written as [{label.name}: {size_text(label.size)}]", label.span)

    def _named(self, label: EquationLabel) -> BoundSize | None:
        if label.dim is None:
            return None
        if isinstance(label.dim, str):
            dim = self.sizes.dims.get(label.dim)
            return None if dim is None else BoundSize(dim.value, f"dim {label.dim}: {dim.origin}", label.span)
        value = self.sizes.evaluate(label.dim)
        return None if value is None else BoundSize(value, self._origin(label), label.span)

    def _origin(self, label: EquationLabel) -> str:
        """Describe the source of the size of a function's label."""
        match label.dim:
            case AxisSize(tensor=tensor, axis=axis):
                return self.sizes.axes[tensor][axis].origin
            case str() | None:
                return f"dim {label.dim}"
            case expr:
                return f"{label.name} = {size_text(expr)}"

    def _split(self) -> bool:
        """Infer the one unknown label of a split from its axis and the other labels; True where one was found."""
        found = False
        for use in self.uses:
            if not isinstance(use.index, SplitIndex):
                continue
            unknown = {p for p in use.index.labels if p not in self.known}
            rest = prod(self.known[p].value for p in use.index.labels if p in self.known)
            if len(unknown) != 1 or rest == 0 or use.index.labels.count(min(unknown)) > 1:
                continue
            if use.size.value % rest:
                self._report_split(use, f"is no multiple of {rest}")
            self.known[unknown.pop()] = BoundSize(use.size.value // rest, f"{use.size} / {rest}", use.span)
            found = True
        return found

    def _infer_from_limit(self) -> bool:
        """Give one label its largest range, if its indices have no other unknown label; True if found.

        Ranges of labels that share an index depend on each other, so they are determined one at a time.
        """
        for p in range(len(self.equation.labels)):
            if p in self.known:
                continue
            mine = [use for use in self.uses if isinstance(use.index, AffineIndex) and p in _labels(use.index)]
            if any(q != p and q not in self.known for use in mine for q in _labels(use.index)):
                continue
            limits = [limit for use in mine if (limit := self._largest(p, use)) is not None]
            if limits:
                self.known[p] = min(limits, key=lambda size: size.value)
                return True
        return False

    def _largest(self, p: int, use: _IndexUse) -> BoundSize | None:
        """The largest range of label ``p`` for which one index stays in bounds; None where it sets no limit."""
        found = self._max_range(p, use)
        if found is None:
            return None
        at_start, max_range = found
        if at_start is not None:
            self._report_outside(use, at_start, (p,))
        return BoundSize(max_range, f"so that {self._text(use)} stays in {use.size}", use.span)

    def _max_range(self, p: int, use: _IndexUse) -> tuple[tuple[int, int] | None, int] | None:
        """Return the index at label value 0 if that is outside the axis, and the largest range of label ``p``.

        None where the index does not limit the range.
        """
        index = self._index(use)
        if index is None or index.modulus:
            return None
        step = dict(index.terms).get(p, 0)
        bounds = [max(1, self.known[q].value) if q in self.known else 0 for q in range(len(self.equation.labels))]
        others = span(Index(tuple(t for t in index.terms if t[0] != p), index.offset), bounds)
        if others is None or step == 0:
            return None
        lowest, highest = others[0], others[1] - (use.size.value * index.divisor - 1)
        max_range = -highest // step if step > 0 else lowest // -step
        outside = (lowest < 0) if step > 0 else (highest > 0)
        start = (others[0] // index.divisor, others[1] // index.divisor)
        return start if outside else None, max(0, max_range + 1)

    def _report_unknown(self) -> None:
        for p, label in enumerate(self.equation.labels):
            if p not in self.known:
                text = f"label '{label.name}' has no size"
                help_text = f"write its size where it is bound: [{label.name}: n]"
                if label.size is None or self.sizes.integer(label.size) is not None:
                    self.sizes.report("E206", text, label.span, help=help_text)
                self.known[p] = BoundSize(0, "unknown", label.span)
                self.sizes.unsized.add(self.equation.number)

    # -- bounds --------------------------------------------------------------------------------------------------------

    def _check(self, use: _IndexUse) -> None:
        """Report an index that leaves its axis."""
        if isinstance(use.index, int) and self.known[use.index].value <= use.size.value:
            return
        if isinstance(use.index, SplitIndex) and prod(self.known[p].value for p in use.index.labels) != use.size.value:
            product = " * ".join(f"{self._name(p)} = {self.known[p].value}" for p in use.index.labels)
            self._report_split(use, f"is not {product}")
        index = self._index(use)
        ends = None if index is None else span(index, [self.known[p].value for p in range(len(self.known))])
        if ends is not None and (ends[0] < 0 or ends[1] >= use.size.value):
            self._report_outside(use, ends)

    def _index(self, use: _IndexUse) -> Index | None:
        bounds = [self.known[p].value if p in self.known else 0 for p in range(len(self.equation.labels))]
        return static_index(self.sizes, use.index, bounds)

    def _report_outside(self, use: _IndexUse, ends: tuple[int, int], without: tuple[int, ...] = ()) -> None:
        name, last = self.sizes.name_of(use.tensor), use.size.value - 1
        reach = str(ends[0]) if ends[0] == ends[1] else f"{ends[0]} .. {ends[1]}"
        named = [p for p in _labels(use.index) if not self._name(p).startswith(":")]
        ranges = (f"0 .. {self.known[p].value - 1} ({self.known[p].origin})" if p not in without else "" for p in named)
        given = [f"{self._name(p)} in {r}" if r else f"{self._name(p)} = 0" for p, r in zip(named, ranges, strict=True)]
        text = self._text(use)
        axis = f"0 .. {last}" if last >= 0 else "empty"
        message = f"index '{text}' leaves axis {use.axis} of {name}: it is {reach}, the axis is {axis}"
        self.sizes.report(
            "E209",
            message,
            self._place(use),
            expected=f"{axis}: {use.size}",
            found=f"{reach}{' with ' if given else ''}{', '.join(given)}",
            help=self._suggestion(use, text, name),
        )

    def _suggestion(self, use: _IndexUse, text: str, name: str) -> str:
        """Suggest a replacement for an index that leaves its axis."""
        labels = _labels(use.index)
        if any(self._name(p).startswith(":") for p in labels):
            return f"axis {use.axis} of {name} has {use.size.value} elements"
        fill = f"a value to read outside: {text} ? 0"
        for p in labels:
            found = self._max_range(p, use)
            if found is not None and found[0] is None and p in self.known and found[1] < self.known[p].value:
                return f"write a smaller range, [{self._name(p)}: {found[1]}], or {fill}"
        return f"write {fill}"

    def _report_split(self, use: _IndexUse, why: str) -> None:
        name = self.sizes.name_of(use.tensor)
        message = f"axis {use.axis} of {name} cannot be split as {self._text(use)}: {use.size.value} {why}"
        self.sizes.report("E210", message, use.span, found=str(use.size))

    def _name(self, p: int) -> str:
        return self.equation.labels[p].name

    def _place(self, use: _IndexUse) -> Span:
        """The source span of an index."""
        if isinstance(use.index, int):
            return axis_span(use.span, use.axis, self.sizes.lines(use.span))
        return use.span

    def _text(self, use: _IndexUse) -> str:
        """The source text of an index, if it is on one line."""
        if isinstance(use.index, int) and not self._name(use.index).startswith(":"):
            return self._name(use.index)
        if isinstance(use.index, SplitIndex):
            return f"({' '.join(map(self._name, use.index.labels))})"
        source, at = self.sizes.lines(use.span), self._place(use)
        if at.line == at.end_line and 0 < at.line <= len(source):
            return source[at.line - 1][at.column - 1 : at.end_column - 1]
        return " + ".join(map(self._name, _labels(use.index))) or "the number"

    def _disagree(self, label: str, first: BoundSize, claim: BoundSize) -> None:
        assert claim.span is not None
        elsewhere = first.span is not None and first.span != claim.span
        places = ((first.span, f"{first.value} here"),) if elsewhere and first.span is not None else ()
        message = f"label '{label}' has two sizes, {first.value} and {claim.value}"
        self.sizes.report("E207", message, claim.span, secondary=places, expected=str(first), found=str(claim))


def _labels(index: int | AffineIndex | SplitIndex) -> tuple[int, ...]:
    match index:
        case int():
            return (index,)
        case AffineIndex(terms=terms):
            return tuple(dict.fromkeys(p for p, _ in terms))
        case SplitIndex(labels=labels):
            return labels


def static_index(sizes: BoundSizes, index: int | AffineIndex | SplitIndex, bounds: list[int]) -> Index | None:
    """Evaluate the sizes in an index; None where one is wrong (reported) or unknown."""
    match index:
        case int():
            return Index(((index, 1),))
        case SplitIndex(labels=labels):
            return row_major(labels, bounds)
    coefficients = [sizes.integer(c) for _, c in index.terms]
    offset = sizes.integer(index.offset)
    divisor = 1 if index.divisor is None else sizes.integer(index.divisor)
    modulus = 0 if index.modulus is None else sizes.integer(index.modulus)
    if offset is None or divisor is None or modulus is None or None in coefficients:
        return None
    for written, value, sign in ((index.divisor, divisor, "//"), (index.modulus, modulus, "%")):
        if written is None or value > 0:
            continue
        if value < 0 or all(bounds[p] for p, _ in index.terms):
            message = f"an index {sign} {size_text(written)} needs a number from 1 on"
            sizes.report("E211", message, index.span, found=f"{size_text(written)} = {value}")
            return None
        divisor, modulus = max(divisor, 1), max(modulus, 0)
    terms = zip((p for p, _ in index.terms), (c for c in coefficients if c is not None), strict=True)
    return affine(terms, offset, divisor, modulus)


def axis_span(place: Span, axis: int, source: tuple[str, ...]) -> Span:
    """Locate one index inside an access by its source text; returns the whole access if it spans lines."""
    if place.line != place.end_line or not 0 < place.line <= len(source):
        return place
    text = source[place.line - 1]
    start = text.find("[", place.column - 1, place.end_column - 1)
    ends, depth = [start], 0
    for i in range(start + 1, place.end_column - 1) if start >= 0 else ():
        depth += (text[i] in "([") - (text[i] in ")]")
        if depth < 0 or (text[i] == "," and depth == 0):
            ends.append(i)
        if depth < 0:
            break
    if axis + 1 >= len(ends):
        return place
    index = text[ends[axis] + 1 : ends[axis + 1]]
    column = ends[axis] + 2 + len(index) - len(index.lstrip())
    return Span(place.file, place.line, column, place.line, column + len(index.strip()))
