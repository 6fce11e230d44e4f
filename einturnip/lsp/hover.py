"""What is told of a word: in Markdown, short."""

from __future__ import annotations

import math

from einturnip.core.units import format_size
from einturnip.ir.dtypes import DTYPES
from einturnip.lang.program import Carried, SizeExpr, SizeLiteral
from einturnip.lang.sizes import size_text
from einturnip.lsp.glossary import GLOSSARY, HINTS
from einturnip.lsp.meaning import LabelMeaning, Meaning, SizeMeaning, TensorMeaning, WordMeaning
from einturnip.lsp.names import VisibleName
from einturnip.lsp.reading import Reading
from einturnip.report.signature import bracketed
from einturnip.report.symbolic_shapes import bounds


def hover(reading: Reading, found: Meaning) -> str:
    """What a meaning is."""
    match found:
        case TensorMeaning(number=number):
            return _tensor(reading, number)
        case LabelMeaning():
            return _label(reading, found)
        case SizeMeaning(dim=dim):
            value = reading.sizes.get(dim.name)
            written = "" if dim.definition is None else f" = {size_text(dim.definition)}"
            known = "" if value is None or written == f" = {value}" else f"{value:,}"
            return _code(f"dim {dim.name}{written}") + (known or ("" if written else "no value here"))
        case VisibleName(detail=detail, about=about, kind=kind):
            return _code(f"fn {detail}" if kind == "function" else detail) + about
        case WordMeaning(text=text):
            return HINTS[text[1:]] if text.startswith("@") else GLOSSARY[text]


def _code(text: str) -> str:
    return f"```ein\n{text}\n```\n"


def _tensor(reading: Reading, number: int) -> str:
    """Its labels and dtype, its shape in names and in numbers, its bytes."""
    assert reading.program is not None
    tensor = reading.program.tensors[number]
    while isinstance(tensor, Carried):
        tensor = reading.program.tensors[tensor.initial]
    row = next(row for row in reading.rows if row.number == tensor.number)
    named = next(row for row in reading.named_rows if row.number == tensor.number)
    told = [f"{row.role or 'computed'} in line {row.line}"]
    if named.axes != tuple(map(str, named.shape)):
        told.append(f"{named.dtype}{bracketed(named.shape)}")
    numbers = [n for n in row.shape if isinstance(n, int)]
    if len(numbers) == len(row.shape):
        nbytes = math.prod(numbers) * DTYPES[row.dtype].itemsize
        told += [f"{row.dtype}{bracketed(row.shape)}"] * bool(numbers and row.shape != named.shape)
        told.append(format_size(nbytes))
    return _code(f"{row.name}{bracketed(row.axes)} : {row.dtype}") + ", ".join(told)


def _label(reading: Reading, label: LabelMeaning) -> str:
    """Its size in names and in numbers, and what fixes that."""
    assert reading.program is not None
    equation, number = label.equation, label.number
    known = bounds(reading.program, equation, reading.sizes)[number]
    named = bounds(reading.program, equation, {})[number]
    sizes = " = ".join(dict.fromkeys(_size(size) for size in (named.size, known.size) if size is not None))
    told = f"size {sizes or 'unknown'}" + (f", by {named.origin}" if named.origin else "")
    return f"label **{equation.labels[number].name}** of {equation.name}: {told}"


def _size(size: SizeExpr) -> str:
    return f"{size.value:,}" if isinstance(size, SizeLiteral) else size_text(size)
