"""Subscripts of ``np.einsum``, of opt_einsum and with names, bound to shapes."""

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
# Maximum number of characters of subscripts in a message.
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
        """The number of missing or surplus axes of the operands; 0 where the labels match."""
        return sum(map(_misfit, self.operands, ranks))


def _misfit(term: Term, rank: int) -> int:
    return max(0, len(term) - 1 - rank) if ... in term else abs(len(term) - rank)


def parse(arguments: Sequence[Any]) -> tuple[tuple[Subscripts, ...], list[Any]]:
    """Parse the subscripts of a call into their possible readings; also return the operands.

    The forms: ``"ij,jk->ik", a, b``, ``"row k, k column -> row column", a, b`` and ``a, [0, 1], b, [1, 2], [0, 2]``.
    A text may be read as letters or as names; the operands' axes decide (``bind``).

    Raises:
        BindError: the subscripts are malformed, or do not match the number of operands.
    """
    if not arguments:
        raise BindError("einsum needs subscripts and at least one operand")
    if isinstance(arguments[0], str):
        readings, operands = _from_text(arguments[0]), list(arguments[1:])
    else:
        readings, operands = _from_lists(arguments)
    named = len(readings[0].operands)
    if named != len(operands):
        raise BindError(f"'{_excerpt(readings[0].text)}' names {named} operands, but {len(operands)} were given")
    return readings, operands


# -- subscripts as text ------------------------------------------------------------------------------------------------


def _from_text(text: str) -> tuple[Subscripts, ...]:
    left, arrow, right = text.partition("->")
    if "->" in right:
        raise BindError(f"'{_excerpt(text, '->')}' has more than one '->'")
    terms = [*left.split(","), *([right] if arrow else [])]
    if "," in right:
        raise BindError(f"'{_excerpt(text, '->')}' has a comma after '->': there is one result")
    for term in terms:
        if term.count(".") != 3 * ("..." in term):
            place = f"'{_excerpt(term.strip())}' in '{_excerpt(text, term)}'"
            raise BindError(f"{place}: an ellipsis is three dots, once in each operand")
    letters = [_split("".join(term.split()), list) for term in terms]
    names = [_split(term, str.split) for term in terms]
    invalid = next((c for term in letters for c in term if c is not ... and not _is_letter(c)), None)
    is_names = all(word is ... or word.isidentifier() for term in names for word in term)
    if invalid and not is_names:
        excerpt = _excerpt(text, invalid)
        raise BindError(
            f"'{invalid}' in the subscripts '{excerpt}' is no label. "
            "help: a label is a character other than , - > and ., or a name"
        )
    readings = [letters] * (not invalid) + [names] * (is_names and names != letters)
    return tuple(Subscripts(tuple(r[: left.count(",") + 1]), r[-1] if arrow else None, text) for r in readings)


def _split(term: str, split: Any) -> tuple[Any, ...]:
    head, dots, tail = term.partition("...")
    return (*split(head), *((...,) if dots else ()), *split(tail))


def _is_letter(character: str) -> bool:
    """True for any character that is not a separator, as in opt_einsum."""
    return character not in _RESERVED and not character.isspace()


def _excerpt(text: str, part: str = "") -> str:
    """Subscripts for a message: all of them, or the surroundings of ``part`` if they are long."""
    if len(text) <= MAX_SHOWN:
        return text
    start = max(0, min(text.find(part) - MAX_SHOWN // 3, len(text) - MAX_SHOWN)) if part in text else 0
    stop = start + MAX_SHOWN
    return f"{'...' if start else ''}{text[start:stop]}{'...' if stop < len(text) else ''}"


# -- subscripts as lists -----------------------------------------------------------------------------------------------


def _from_lists(arguments: Sequence[Any]) -> tuple[tuple[Subscripts, ...], list[Any]]:
    if len(arguments) < 2:
        raise BindError("einsum needs subscripts and at least one operand")
    output = _term_of_list(arguments[-1]) if len(arguments) % 2 else None
    pairs = arguments[: len(arguments) // 2 * 2]
    terms = tuple(map(_term_of_list, pairs[1::2]))
    text = ", ".join(map(_bracketed, terms))
    return (Subscripts(terms, output, text if output is None else f"{text} -> {_bracketed(output)}"),), list(pairs[::2])


def _term_of_list(labels: Any) -> Term:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise DTypeError(
            "einsum without a subscripts string takes operand, labels, operand, labels, ...: [0, 1] or [0, ...]"
        )
    term = tuple(map(_label, labels))
    if term.count(...) > 1:
        raise BindError(f"the labels {_bracketed(term)} hold more than one ellipsis")
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


def _bracketed(term: Term) -> str:
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
    """Expand every ellipsis in the subscripts and determine every size.

    Letters take precedence if both letters and names match the axes: text that NumPy accepts has NumPy's meaning.

    Raises:
        BindError: a label has two sizes, or the subscripts do not match an operand's axes.
    """
    subscripts = min(readings, key=lambda reading: reading.misfit([*map(len, shapes)]))
    ellipsis_ranks = [len(shape) - len(t) + 1 for t, shape in zip(subscripts.operands, shapes, strict=True) if ... in t]
    hidden = tuple(f"...{k}" for k in range(max(ellipsis_ranks, default=0)))
    terms = [_expanded(position, shape, hidden, subscripts) for position, shape in enumerate(shapes)]
    sizes = _sizes(terms, shapes, subscripts.text)
    bound_terms = tuple(
        tuple(label if sizes[label] == n else None for label, n in zip(term, shape, strict=True))
        for term, shape in zip(terms, shapes, strict=True)
    )
    return BoundSubscripts(bound_terms, _output(subscripts, terms, hidden), sizes, subscripts.text)


def _expanded(position: int, shape: tuple[int, ...], hidden: Labels, subscripts: Subscripts) -> Labels:
    term = subscripts.operands[position]
    named = len(term) - (... in term)
    if _misfit(term, len(shape)):
        raise BindError(
            f"'{_excerpt(_notation(term))}' in '{_excerpt(subscripts.text, _notation(term))}' names {named} "
            f"{'axis' if named == 1 else 'axes'}, "
            f"but operand {position} has {len(shape)}: shape {list(shape)}"
        )
    ellipsis_axes = hidden[len(hidden) - (len(shape) - named) :]
    return tuple(one for label in term for one in (ellipsis_axes if label is ... else (label,)))


def _notation(term: Term) -> str:
    """A term in its notation: letters together, names separated, numbers in brackets."""
    if any(isinstance(label, int) for label in term):
        return _bracketed(term)
    between = " " if any(isinstance(label, str) and len(label) > 1 for label in term) else ""
    return between.join("..." if label is ... else str(label) for label in term)


def _sizes(terms: Sequence[Labels], shapes: Sequence[tuple[int, ...]], text: str) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    owner: dict[Label, int] = {}
    for position, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for label, n in zip(term, shape, strict=True):
            known_size = sizes.get(label, 1)
            # Size 1 broadcasts between operands, not along a diagonal.
            if known_size != n and (owner.get(label) == position or 1 not in (known_size, n)):
                other = owner[label]
                excerpt = _excerpt(text, str(label))
                raise BindError(
                    f"label '{label}' of '{excerpt}' has size {known_size} in operand {other} of shape "
                    f"{list(shapes[other])} but {n} in operand {position} of shape {list(shape)}"
                )
            if label not in sizes or known_size == 1:
                sizes[label], owner[label] = n, position
    return sizes


def _output(subscripts: Subscripts, terms: Sequence[Labels], hidden: Labels) -> Labels:
    count = Counter(label for term in terms for label in term)
    if subscripts.output is None:
        unique = [label for label in count if count[label] == 1 and label not in hidden]
        return (*hidden, *sorted(unique, key=lambda label: (isinstance(label, str), label)))
    output = [one for label in subscripts.output for one in (hidden if label is ... else (label,))]
    for label, times in Counter(output).items():
        if label not in count:
            raise BindError(f"label '{label}' of the result of '{_excerpt(subscripts.text, '->')}' is in no operand")
        if times > 1:
            raise BindError(f"label '{label}' stands twice in the result of '{_excerpt(subscripts.text, '->')}'")
    if ... not in subscripts.output and hidden:
        raise BindError(f"the result of '{_excerpt(subscripts.text, '->')}' lacks the ellipsis that an operand has")
    return tuple(output)


# -- as a program ------------------------------------------------------------------------------------------------------


def program_text(
    contraction: BoundSubscripts,
    dtypes: Sequence[DType],
    result: DType,
    path: Sequence[tuple[int, ...]] | None = None,
) -> str:
    """The contraction as a program: operands ``operand0`` ... and ``result``, accumulated in that dtype.

    ``path``: an equation for each of its steps, instead of one for all operands.
    """
    names = _names(contraction.sizes)
    lines, factors = [], []
    for position, (term, dtype) in enumerate(zip(contraction.terms, dtypes, strict=True)):
        axes = ", ".join("1" if label is None else str(contraction.sizes[label]) for label in term)
        lines.append(f"input operand{position} : {dtype}" + (f"[{axes}]" if term else ""))
        factors.append(
            (frozenset(term) - {None}, _converted(f"operand{position}" + _indices(term, names), dtype, result))
        )
    for number, step in enumerate(path[:-1] if path else ()):
        taken = [factors.pop(k) for k in sorted(step, reverse=True)][::-1]
        needed = frozenset(contraction.output).union(*(labels for labels, _ in factors))
        present = frozenset[Any]().union(*(labels for labels, _ in taken))
        kept = [label for label in contraction.sizes if label in present & needed]
        left = f"step{number}" + _indices(kept, names)
        lines.append(_equation(left, taken, kept, contraction, names, result))
        factors.append((frozenset(kept), left))
    left = f"result{_indices(contraction.output, names)}"
    lines += [_equation(left, factors, contraction.output, contraction, names, result), "output result"]
    return "\n".join(lines) + "\n"


def _equation(
    left: str,
    factors: Sequence[tuple[frozenset[Any], str]],
    kept: Sequence[Label],
    contraction: BoundSubscripts,
    names: Mapping[Label, str],
    result: DType,
) -> str:
    """The equation that sums a product over all labels but those of its left side."""
    product = _balanced([factor for _, factor in factors], " and " if result == BOOL else " * ")
    present = frozenset[Any]().union(*(labels for labels, _ in factors))
    summed = ", ".join(names[label] for label in contraction.sizes if label in present and label not in kept)
    if summed:
        product = f"any[{summed}] ({product})" if result == BOOL else f"sum[{summed} : {result}] {product}"
    return f"{left} = {product}"


def _converted(access: str, dtype: DType, result: DType) -> str:
    """An access converted to another dtype as NumPy's ``astype`` does."""
    if dtype == result:
        return access
    if result == BOOL:
        return f"({access} != 0)"
    return f"{result}(real({access}))" if dtype.kind == "c" and result.kind != "c" else f"{result}({access})"


def _names(labels: Iterable[Label]) -> dict[Label, str]:
    """A name in the language for each label: its own, or a numbered one if that is invalid or reserved."""
    valid_name = re.compile(r"[A-Za-z_]+")
    return {
        label: label
        if isinstance(label, str) and valid_name.fullmatch(label) and label not in RESERVED
        else f"label{position}"
        for position, label in enumerate(labels)
    }


def _balanced(factors: Sequence[str], operator: str) -> str:
    """A product nested only logarithmically deep, because the language limits the nesting."""
    if len(factors) <= 8:
        return operator.join(factors)
    half = len(factors) // 2
    return f"({_balanced(factors[:half], operator)}){operator}({_balanced(factors[half:], operator)})"


def _indices(labels: Sequence[Label | None], names: Mapping[Label, str]) -> str:
    return f"[{', '.join('0' if label is None else names[label] for label in labels)}]" if labels else ""
