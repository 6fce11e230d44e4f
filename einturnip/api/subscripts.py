"""``np.einsum``'s subscripts, opt_einsum's and those of names, bound to shapes."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, TypeAlias

from einturnip.core.errors import BindError, DTypeError
from einturnip.ir.dtypes import BOOL, DType
from einturnip.lang.keywords import RESERVED

# Characters that separate labels and terms.
_RESERVED = frozenset(",->.")
# Characters of subscripts that a message repeats.
MAX_SHOWN = 120

Label: TypeAlias = str | int
Labels = tuple[Label, ...]
Term = tuple[Label | EllipsisType, ...]


@dataclass(frozen=True, slots=True)
class Subscripts:
    """The labels of each operand and of the result, if one is written. ``text``: as the caller wrote them."""

    operands: tuple[Term, ...]
    output: Term | None
    text: str

    def misfit(self, ranks: Sequence[int]) -> int:
        """How many axes the operands have too many or too few; 0 where the labels go with them."""
        return sum(map(_misfit, self.operands, ranks))


def _misfit(term: Term, rank: int) -> int:
    return max(0, len(term) - 1 - rank) if ... in term else abs(len(term) - rank)


def parse(arguments: Sequence[Any]) -> tuple[tuple[Subscripts, ...], list[Any]]:
    """What the subscripts of a call may mean, and the operands.

    The forms: ``"ij,jk->ik", a, b``, ``"row k, k column -> row column", a, b`` and ``a, [0, 1], b, [1, 2], [0, 2]``.
    A text may read as letters and as names; which of them is meant, the operands' axes decide (``bind``).

    Raises:
        BindError: the subscripts are malformed, or do not go with the number of operands.
    """
    if not arguments:
        raise BindError("einsum needs subscripts and at least one operand")
    if isinstance(arguments[0], str):
        readings, operands = _from_text(arguments[0]), list(arguments[1:])
    else:
        readings, operands = _from_lists(arguments)
    named = len(readings[0].operands)
    if named != len(operands):
        raise BindError(f"'{_part_of(readings[0].text)}' names {named} operands, but {len(operands)} were given")
    return readings, operands


# -- subscripts as text ------------------------------------------------------------------------------------------------


def _from_text(text: str) -> tuple[Subscripts, ...]:
    left, arrow, right = text.partition("->")
    if "->" in right:
        raise BindError(f"'{_part_of(text, '->')}' has more than one '->'")
    terms = [*left.split(","), *([right] if arrow else [])]
    if "," in right:
        raise BindError(f"'{_part_of(text, '->')}' has a comma after '->': there is one result")
    for term in terms:
        if term.count(".") != 3 * ("..." in term):
            place = f"'{_part_of(term.strip())}' in '{_part_of(text, term)}'"
            raise BindError(f"{place}: an ellipsis is three dots, once in each operand")
    letters = [_split("".join(term.split()), list) for term in terms]
    names = [_split(term, str.split) for term in terms]
    strange = next((c for term in letters for c in term if c is not ... and not _is_letter(c)), None)
    is_names = all(word is ... or word.isidentifier() for term in names for word in term)
    if strange and not is_names:
        where = _part_of(text, strange)
        raise BindError(
            f"'{strange}' in the subscripts '{where}' is no label. "
            "help: a label is a character other than , - > and ., or a name"
        )
    readings = [letters] * (not strange) + [names] * (is_names and names != letters)
    return tuple(Subscripts(tuple(r[: left.count(",") + 1]), r[-1] if arrow else None, text) for r in readings)


def _split(term: str, cut: Any) -> tuple[Any, ...]:
    head, dots, tail = term.partition("...")
    return (*cut(head), *((...,) if dots else ()), *cut(tail))


def _is_letter(character: str) -> bool:
    """True for any character that separates nothing, as in opt_einsum."""
    return character not in _RESERVED and not character.isspace()


def _part_of(text: str, part: str = "") -> str:
    """Subscripts for a message: all of them, or what is around ``part`` where they are long."""
    if len(text) <= MAX_SHOWN:
        return text
    start = max(0, min(text.find(part) - MAX_SHOWN // 3, len(text) - MAX_SHOWN)) if part in text else 0
    stop = start + MAX_SHOWN
    return f"{'...' if start else ''}{text[start:stop]}{'...' if stop < len(text) else ''}"


# -- subscripts as lists -----------------------------------------------------------------------------------------------


def _from_lists(arguments: Sequence[Any]) -> tuple[tuple[Subscripts, ...], list[Any]]:
    if len(arguments) < 2:
        raise BindError("einsum needs subscripts and at least one operand")
    output = _listed(arguments[-1]) if len(arguments) % 2 else None
    pairs = arguments[: len(arguments) // 2 * 2]
    terms = tuple(map(_listed, pairs[1::2]))
    text = ", ".join(map(_shown, terms))
    return (Subscripts(terms, output, text if output is None else f"{text} -> {_shown(output)}"),), list(pairs[::2])


def _listed(labels: Any) -> Term:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise DTypeError(
            "einsum without a subscripts string takes operand, labels, operand, labels, ...: [0, 1] or [0, ...]"
        )
    term = tuple(map(_label, labels))
    if term.count(...) > 1:
        raise BindError(f"the labels {_shown(term)} hold more than one ellipsis")
    return term


def _label(label: Any) -> Label | EllipsisType:
    if label is ... or (isinstance(label, str) and label and "." not in label):
        return label
    try:
        number = operator.index(label)
    except TypeError:
        message = f"a label is a number from 0, a name, or an ellipsis, not {type(label).__name__}"
        raise DTypeError(
            f"{message}. help: subscripts as a string come first, labels in lists behind each operand"
        ) from None
    if number < 0:
        raise BindError(f"the label {number} is negative. help: labels are numbers from 0, names, or an ellipsis")
    return number


def _shown(term: Term) -> str:
    return f"[{', '.join('...' if label is ... else str(label) for label in term)}]"


# -- subscripts and shapes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundSubscripts:
    """Subscripts bound to shapes.

    ``terms`` are each operand's labels, None for an axis of size 1 that broadcasts; ``sizes`` of all labels. The axes
    of an ellipsis are labelled ``...0``, ``...1`` and so on.
    """

    terms: tuple[tuple[Label | None, ...], ...]
    output: Labels
    sizes: dict[Label, int]
    text: str


def bind(readings: Sequence[Subscripts], shapes: Sequence[tuple[int, ...]]) -> BoundSubscripts:
    """The subscripts with every ellipsis spelled out and every size known.

    Letters come first where both they and names go with the axes: what NumPy accepts, means what it means there.

    Raises:
        BindError: a label has two sizes, or the subscripts do not go with an operand's axes.
    """
    subscripts = min(readings, key=lambda reading: reading.misfit([*map(len, shapes)]))
    rests = [len(shape) - len(t) + 1 for t, shape in zip(subscripts.operands, shapes, strict=True) if ... in t]
    hidden = tuple(f"...{k}" for k in range(max(rests, default=0)))
    terms = [_spelled(position, shape, hidden, subscripts) for position, shape in enumerate(shapes)]
    sizes = _sizes(terms, shapes, subscripts.text)
    kept = tuple(
        tuple(label if sizes[label] == n else None for label, n in zip(term, shape, strict=True))
        for term, shape in zip(terms, shapes, strict=True)
    )
    return BoundSubscripts(kept, _output(subscripts, terms, hidden), sizes, subscripts.text)


def _spelled(position: int, shape: tuple[int, ...], hidden: Labels, subscripts: Subscripts) -> Labels:
    term = subscripts.operands[position]
    named = len(term) - (... in term)
    if _misfit(term, len(shape)):
        raise BindError(
            f"'{_part_of(_written(term))}' in '{_part_of(subscripts.text, _written(term))}' names {named} "
            f"{'axis' if named == 1 else 'axes'}, "
            f"but operand {position} has {len(shape)}: shape {list(shape)}"
        )
    rest = hidden[len(hidden) - (len(shape) - named) :]
    return tuple(one for label in term for one in (rest if label is ... else (label,)))


def _written(term: Term) -> str:
    """A term as in a text of its kind: letters together, names apart, numbers in brackets."""
    if any(isinstance(label, int) for label in term):
        return _shown(term)
    between = " " if any(isinstance(label, str) and len(label) > 1 for label in term) else ""
    return between.join("..." if label is ... else str(label) for label in term)


def _sizes(terms: Sequence[Labels], shapes: Sequence[tuple[int, ...]], text: str) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    owner: dict[Label, int] = {}
    for position, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for label, n in zip(term, shape, strict=True):
            known = sizes.get(label, 1)
            # Size 1 broadcasts between operands, not along a diagonal.
            if known != n and (owner.get(label) == position or 1 not in (known, n)):
                other = owner[label]
                where = _part_of(text, str(label))
                raise BindError(
                    f"label '{label}' of '{where}' has size {known} in operand {other} of shape {list(shapes[other])} "
                    f"but {n} in operand {position} of shape {list(shape)}"
                )
            if label not in sizes or known == 1:
                sizes[label], owner[label] = n, position
    return sizes


def _output(subscripts: Subscripts, terms: Sequence[Labels], hidden: Labels) -> Labels:
    count = Counter(label for term in terms for label in term)
    if subscripts.output is None:
        once = [label for label in count if count[label] == 1 and label not in hidden]
        return (*hidden, *sorted(once, key=lambda label: (isinstance(label, str), label)))
    output = [one for label in subscripts.output for one in (hidden if label is ... else (label,))]
    for label, times in Counter(output).items():
        if label not in count:
            raise BindError(f"label '{label}' of the result of '{_part_of(subscripts.text, '->')}' is in no operand")
        if times > 1:
            raise BindError(f"label '{label}' stands twice in the result of '{_part_of(subscripts.text, '->')}'")
    if ... not in subscripts.output and hidden:
        raise BindError(f"the result of '{_part_of(subscripts.text, '->')}' lacks the ellipsis that an operand has")
    return tuple(output)


# -- as a program ------------------------------------------------------------------------------------------------------


def program_text(contraction: BoundSubscripts, dtypes: Sequence[DType], result: DType) -> str:
    """The contraction in the language: operands ``operand0`` ... and ``result``, accumulated in that dtype."""
    names = _names(contraction.sizes)
    lines, factors = [], []
    for position, (term, dtype) in enumerate(zip(contraction.terms, dtypes, strict=True)):
        axes = ", ".join("1" if label is None else str(contraction.sizes[label]) for label in term)
        lines.append(f"input operand{position} : {dtype}" + (f"[{axes}]" if term else ""))
        access = f"operand{position}" + _indices(term, names)
        factors.append(_converted(access, dtype, result))
    product = _balanced(factors, " and " if result == BOOL else " * ")
    summed = ", ".join(names[label] for label in contraction.sizes if label not in contraction.output)
    if summed:
        product = f"any[{summed}] ({product})" if result == BOOL else f"sum[{summed} : {result}] {product}"
    lines += [f"result{_indices(contraction.output, names)} = {product}", "output result"]
    return "\n".join(lines) + "\n"


def _converted(access: str, dtype: DType, result: DType) -> str:
    """An access in another dtype, as NumPy's ``astype`` converts it."""
    if dtype == result:
        return access
    if result == BOOL:
        return f"({access} != 0)"
    return f"{result}(real({access}))" if dtype.kind == "c" and result.kind != "c" else f"{result}({access})"


def _names(labels: Iterable[Label]) -> dict[Label, str]:
    """A name in the language for each label: its own, or, where that is none or may be taken, a number's."""
    plain = re.compile(r"[A-Za-z_]+")
    return {
        label: label
        if isinstance(label, str) and plain.fullmatch(label) and label not in RESERVED
        else f"label{position}"
        for position, label in enumerate(labels)
    }


def _balanced(factors: Sequence[str], operator: str) -> str:
    """A product that nests as deep as the logarithm of its length: the language bounds how deep it may."""
    if len(factors) <= 8:
        return operator.join(factors)
    half = len(factors) // 2
    return f"({_balanced(factors[:half], operator)}){operator}({_balanced(factors[half:], operator)})"


def _indices(labels: Sequence[Label | None], names: Mapping[Label, str]) -> str:
    return f"[{', '.join('0' if label is None else names[label] for label in labels)}]" if labels else ""
