"""``np.einsum``'s subscripts as an einturnip program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from einturnip.core.dtypes import BOOL, DType
from einturnip.core.errors import BindError

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscripts:
    """The labels of each operand and of the result; an ellipsis stands as the label ``...``."""

    operands: tuple[Labels, ...]
    output: Labels | None
    text: str


def parse(arguments: Sequence[Any]) -> tuple[Subscripts, list[Any]]:
    """Subscripts and operands of a call in either of NumPy's forms: ``"ij,jk", a, b`` or ``a, [0, 1], b, [1, 2]``.

    Raises:
        BindError: the subscripts are malformed, or do not go with the number of operands.
    """
    if not arguments:
        raise BindError("einsum needs subscripts and at least one operand")
    if isinstance(arguments[0], str):
        subscripts, operands = _from_text(arguments[0]), list(arguments[1:])
    else:
        subscripts, operands = _from_lists(arguments)
    if len(subscripts.operands) != len(operands):
        raise BindError(
            f"'{subscripts.text}' names {len(subscripts.operands)} operands, but {len(operands)} were given"
        )
    return subscripts, operands


def _from_text(text: str) -> Subscripts:
    left, arrow, right = "".join(text.split()).partition("->")
    operands = tuple(_labels(term, text) for term in left.split(","))
    return Subscripts(operands, _labels(right, text) if arrow else None, text)


def _labels(term: str, text: str) -> Labels:
    head, dots, tail = term.partition("...")
    for letter in head + tail:
        if not letter.isalpha():
            raise BindError(f"'{letter}' in the subscripts '{text}' is no label. help: labels are single letters")
    return (*head, *(("...",) if dots else ()), *tail)


def _from_lists(arguments: Sequence[Any]) -> tuple[Subscripts, list[Any]]:
    output = _names(arguments[-1]) if len(arguments) % 2 else None
    pairs = arguments[: len(arguments) // 2 * 2]
    terms = tuple(_names(labels) for labels in pairs[1::2])
    text = ",".join("".join(term) for term in terms)
    return Subscripts(terms, output, text if output is None else f"{text}->{''.join(output)}"), list(pairs[::2])


def _names(labels: Any) -> Labels:
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise BindError(
            "einsum without a subscripts string takes operand, labels, operand, labels, ...: [0, 1] or [0, ...]"
        )
    names = []
    for label in labels:
        if label is not Ellipsis and (not isinstance(label, int) or label < 0):
            raise BindError(f"the label {label!r} is neither a number from 0 nor an ellipsis")
        names.append("..." if label is Ellipsis else _letter(label))
    return tuple(names)


def _letter(number: int) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return alphabet[number] if number < len(alphabet) else f"label{number}"


@dataclass(frozen=True, slots=True)
class Contraction:
    """Subscripts bound to shapes.

    ``terms`` are each operand's labels with the axes dropped that broadcast; ``dropped`` those axes; ``sizes`` of all
    labels.
    """

    terms: tuple[Labels, ...]
    dropped: tuple[tuple[int, ...], ...]
    output: Labels
    sizes: dict[str, int]
    text: str


def bind(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]]) -> Contraction:
    """The subscripts with every ellipsis spelled out and every size known.

    Raises:
        BindError: a label has two sizes, or the subscripts do not go with an operand's axes.
    """
    rests = [len(shape) - len(t) + 1 for t, shape in zip(subscripts.operands, shapes, strict=True) if "..." in t]
    hidden = max(rests, default=0)
    terms = [_spelled(t, shapes[p], hidden, p, subscripts) for p, t in enumerate(subscripts.operands)]
    sizes: dict[str, int] = {}
    owner: dict[str, int] = {}
    for position, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for label, n in zip(term, shape, strict=True):
            known = sizes.get(label, 1)
            if known != 1 and n not in (1, known):
                raise BindError(
                    f"label '{label}' of '{subscripts.text}' has size {known} in operand {owner[label]} "
                    f"of shape {list(shapes[owner[label]])} but {n} in operand {position} of shape {list(shape)}"
                )
            if label not in sizes or known == 1:
                sizes[label], owner[label] = n, position
    dropped = tuple(
        tuple(axis for axis, label in enumerate(term) if shape[axis] != sizes[label])
        for term, shape in zip(terms, shapes, strict=True)
    )
    kept = tuple(
        tuple(label for axis, label in enumerate(term) if axis not in gone)
        for term, gone in zip(terms, dropped, strict=True)
    )
    return Contraction(kept, dropped, _output(subscripts, terms, hidden), sizes, subscripts.text)


def _spelled(term: Labels, shape: tuple[int, ...], hidden: int, position: int, subscripts: Subscripts) -> Labels:
    named = len(term) - ("..." in term)
    if named > len(shape) or ("..." not in term and named != len(shape)):
        raise BindError(
            f"'{''.join(term)}' in '{subscripts.text}' names {named} axes, "
            f"but operand {position} has {len(shape)}: shape {list(shape)}"
        )
    rest = len(shape) - named
    at = term.index("...") if "..." in term else len(term)
    return (*term[:at], *(f"d{k}" for k in range(hidden - rest, hidden) if "..." in term), *term[at + 1 :])


def _output(subscripts: Subscripts, terms: Sequence[Labels], hidden: int) -> Labels:
    every = [label for term in terms for label in term]
    rest = tuple(f"d{k}" for k in range(hidden))
    if subscripts.output is None:
        return rest + tuple(sorted(label for label in set(every) - set(rest) if every.count(label) == 1))
    output: list[str] = []
    for label in subscripts.output:
        output += rest if label == "..." else [label]
    for label in output:
        if label not in every:
            raise BindError(f"label '{label}' of the result of '{subscripts.text}' is in no operand")
        if output.count(label) > 1:
            raise BindError(f"label '{label}' stands twice in the result of '{subscripts.text}'")
    if "..." not in subscripts.output and hidden:
        raise BindError(f"the result of '{subscripts.text}' lacks the ellipsis that an operand has")
    return tuple(output)


def program_text(contraction: Contraction, dtypes: Sequence[DType], result: DType) -> str:
    """The contraction in the language: operands ``operand0`` ... and ``result``, accumulated in that dtype."""
    lines, factors = [], []
    for position, (term, dtype) in enumerate(zip(contraction.terms, dtypes, strict=True)):
        axes = ", ".join(str(contraction.sizes[label]) for label in term)
        lines.append(f"input operand{position} : {dtype}" + (f"[{axes}]" if term else ""))
        access = f"operand{position}" + _indices(term)
        factors.append(access if dtype == result else f"{result}({access})")
    product = (" and " if result == BOOL else " * ").join(factors)
    kept = dict.fromkeys(label for term in contraction.terms for label in term)
    summed = [label for label in kept if label not in contraction.output]
    if summed:
        names = ", ".join(summed)
        product = f"any[{names}] ({product})" if result == BOOL else f"sum[{names} : {result}] {product}"
    lines += [f"result{_indices(contraction.output)} = {product}", "output result"]
    return "\n".join(lines) + "\n"


def _indices(labels: Labels) -> str:
    return f"[{', '.join(labels)}]" if labels else ""
