"""Values of sizes, and ranges of labels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from einturnip.testing.agreement import Array
from einturnip.testing.labels import accesses, calls, children, consumed_labels, free_labels, plain_indices
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    CallTerm,
    DrawnProgram,
    GroupTerm,
    GuardedTerm,
    IndexTerm,
    NumberTerm,
    ParenTerm,
    RestTerm,
    SizeTerm,
    SliceTerm,
    Term,
    UnaryTerm,
)

_FAR = 200
"""A label with a larger range has no size that limits it."""


def bind(program: DrawnProgram, inputs: Mapping[str, Array], given: Mapping[str, int]) -> dict[str, int]:
    """The value of every dim: given, from the axes that it names, or from its definition."""
    sizes = dict(given)
    for i in program.inputs:
        for term, size in zip(i.shape, np.asarray(inputs[i.name]).shape, strict=True):
            if isinstance(term, SizeTerm) and sizes.setdefault(term.name, size) != size:
                raise ValueError(f"{term.name} is {sizes[term.name]} and {size}")
    for dim in program.dims:
        if dim.size is not None:
            size = size_value(dim.size, sizes)
            if sizes.setdefault(dim.name, size) != size:
                raise ValueError(f"{dim.name} is {sizes[dim.name]} and {size}")
    for i in program.inputs:
        shape = tuple(size_value(term, sizes) for term in i.shape)
        if shape != np.asarray(inputs[i.name]).shape:
            raise ValueError(f"{i.name} is {np.asarray(inputs[i.name]).shape}, declared {shape}")
    return sizes


def size_value(term: Term, sizes: Mapping[str, int]) -> int:
    """The value of a written size, or of an index if ``sizes`` also contains its labels."""
    match term:
        case NumberTerm(value=int(value)):
            return value
        case SizeTerm(name=name) | IndexTerm(label=name):
            return sizes[name]
        case ParenTerm(inner=inner):
            return size_value(inner, sizes)
        case UnaryTerm(op="-", argument=argument):
            return -size_value(argument, sizes)
        case BinaryTerm(op=op, left=left, right=right):
            a, b = size_value(left, sizes), size_value(right, sizes)
            match op:
                case "+":
                    return a + b
                case "-":
                    return a - b
                case "*":
                    return a * b
                case "//":
                    return a // b
                case "%":
                    return a % b
    raise ValueError(f"not a size: {term}")


def is_static(term: Term) -> bool:
    """True for an index or size of labels, sizes and numbers alone."""
    match term:
        case NumberTerm(value=value):
            return type(value) is int
        case SizeTerm() | IndexTerm():
            return True
        case ParenTerm(inner=inner):
            return is_static(inner)
        case UnaryTerm(op="-", argument=argument):
            return is_static(argument)
        case BinaryTerm(op=op, left=left, right=right):
            return op in ("+", "-", "*", "//", "%") and is_static(left) and is_static(right)
        case _:
            return False


def is_affine(term: Term) -> bool:
    """True for a static index without a product of labels, a quotient or a remainder."""
    match term:
        case ParenTerm(inner=inner) | UnaryTerm(argument=inner):
            return is_affine(inner)
        case BinaryTerm(op="+" | "-", left=left, right=right):
            return is_affine(left) and is_affine(right)
        case BinaryTerm(op="*", left=left, right=right):
            return is_affine(left) and is_affine(right) and not (free_labels(left) and free_labels(right))
        case BinaryTerm():
            return is_static(term) and not free_labels(term)
        case _:
            return is_static(term)


@dataclass(frozen=True)
class RangeContext:
    """The context in which labels are bound: sizes by name, shapes of tensors, ranges of outer labels."""

    sizes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    around: Mapping[str, int]


def ranges(bounds: Iterable[BoundTerm], terms: tuple[Term, ...], context: RangeContext) -> dict[str, int]:
    """The range of each bound label over ``terms``, without labels that a call introduces.

    It is the size written with the label, or that of its dim, or that of an axis with the label as its index, or the
    largest for which every access is in bounds.

    Raises:
        ValueError: a label has two sizes, or none.
    """
    bounds = tuple(bounds)
    found: dict[str, int] = {}
    for bound in bounds:
        known = _known(bound, terms, context)
        if known is not None:
            found[bound.label] = known
    for bound in bounds:
        if bound.label not in found:
            size = _share(bound.label, terms, context, found)
            if size is not None:
                found[bound.label] = size
    made = {x for term in terms for call in calls(term) for x in call.made}
    for bound in bounds:
        if bound.label not in found and bound.label not in made:
            found[bound.label] = _largest(bound.label, terms, context, found)
    return found


def _known(bound: BoundTerm, terms: tuple[Term, ...], context: RangeContext) -> int | None:
    axes = {context.shapes[name][axis] for t in terms for name, axis, label in plain_indices(t) if label == bound.label}
    if bound.size is not None:
        size = size_value(bound.size, context.sizes)
        if size < 0 or any(axis < size for axis in axes):
            raise ValueError(f"{bound.label} is {size}, the axes {sorted(axes)}")
        return size
    if bound.label in context.sizes:
        axes.add(context.sizes[bound.label])
    if len(axes) > 1:
        raise ValueError(f"label {bound.label} has sizes {sorted(axes)}")
    return axes.pop() if axes else None


def _share(label: str, terms: tuple[Term, ...], context: RangeContext, found: Mapping[str, int]) -> int | None:
    """The size of a label of a split axis whose other labels are known."""
    for access, hidden in (pair for t in terms for pair in accesses(t)):
        for axis, position in enumerate(access.indices):
            if isinstance(position, GroupTerm) and label in position.labels and label not in hidden:
                others = 1
                for other in position.labels:
                    if other != label:
                        others *= {**context.around, **found}[other]
                if not others or context.shapes[access.name][axis] % others:
                    raise ValueError(f"{label} of {position}: {context.shapes[access.name][axis]} / {others}")
                return context.shapes[access.name][axis] // others
    return None


def _largest(label: str, terms: tuple[Term, ...], context: RangeContext, found: Mapping[str, int]) -> int:
    around = {**context.around, **found}
    demands = [d for t in terms for d in _demands(label, t, RangeContext(context.sizes, context.shapes, around))]
    size = 0
    while size < _FAR and all(_in_bounds(label, size, *demand, context.sizes) for demand in demands):
        size += 1
    if size == _FAR or not demands:
        raise ValueError(f"nothing sizes label {label}")
    return size


def _demands(label: str, term: Term, context: RangeContext) -> list[tuple[Term, int, dict[str, int]]]:
    """(index, axis, ranges of its other labels) of every unguarded affine index with the label."""
    if isinstance(term, CallTerm) and label in consumed_labels(term):
        return []
    if isinstance(term, AggregateTerm):
        if any(b.label == label for b in term.bounds):
            return []
        inner = {b.label: _known(b, (term.body,), context) for b in term.bounds}
        around = {**context.around, **{x: size for x, size in inner.items() if size is not None}}
        context = RangeContext(context.sizes, context.shapes, around)
    found = [demand for inner in children(term) for demand in _demands(label, inner, context)]
    if isinstance(term, AccessTerm):
        for axis, position in enumerate(term.indices):
            if isinstance(position, str | GuardedTerm | GroupTerm | SliceTerm | RestTerm) or not is_affine(position):
                continue
            if label in (labels := free_labels(position)):
                others = {x: context.around[x] for x in labels - {label}}
                found.append((position, context.shapes[term.name][axis], others))
    return found


def _in_bounds(
    label: str, at: int, index: Term, axis: int, others: Mapping[str, int], sizes: Mapping[str, int]
) -> bool:
    """True if the index is in bounds at one value of a label, for all values of the others."""
    points = itertools.product(*map(range, others.values()))
    values = (size_value(index, {**sizes, **dict(zip(others, p, strict=True)), label: at}) for p in points)
    return all(0 <= value < axis for value in values)
