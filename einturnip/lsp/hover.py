"""Hover texts: a short description of a word, in Markdown."""

from __future__ import annotations

import math

from einturnip.core.units import format_size
from einturnip.ir.dtypes import DTYPES
from einturnip.lang.expressions import SizeExpr, SizeLiteral
from einturnip.lang.program import Carried
from einturnip.lang.sizes import size_text
from einturnip.lsp.glossary import GLOSSARY, HINTS
from einturnip.lsp.meaning import LabelMeaning, Meaning, SizeMeaning, TensorMeaning, WordMeaning
from einturnip.lsp.names import VisibleName
from einturnip.lsp.reading import Reading
from einturnip.report.signature import bracketed
from einturnip.report.symbolic_shapes import bounds


def hover(reading: Reading, found: Meaning) -> str:
    """Describe a meaning."""
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
    """Describe a tensor: labels, dtype, shape in names and in numbers, bytes."""
    assert reading.program is not None
    tensor = reading.program.tensors[number]
    while isinstance(tensor, Carried):
        tensor = reading.program.tensors[tensor.initial]
    row = next(row for row in reading.rows if row.number == tensor.number)
    symbolic = next(row for row in reading.symbolic_rows if row.number == tensor.number)
    facts = [f"{row.role or 'computed'} in line {row.line}"]
    if symbolic.axes != tuple(map(str, symbolic.shape)):
        facts.append(f"{symbolic.dtype}{bracketed(symbolic.shape)}")
    numbers = [n for n in row.shape if isinstance(n, int)]
    if len(numbers) == len(row.shape):
        nbytes = math.prod(numbers) * DTYPES[row.dtype].itemsize
        facts += [f"{row.dtype}{bracketed(row.shape)}"] * bool(numbers and row.shape != symbolic.shape)
        facts.append(format_size(nbytes))
    return _code(f"{row.name}{bracketed(row.axes)} : {row.dtype}") + ", ".join(facts)


def _label(reading: Reading, label: LabelMeaning) -> str:
    """Describe a label: its size in names and in numbers, and the origin of the size."""
    assert reading.program is not None
    equation, number = label.equation, label.number
    known = bounds(reading.program, equation, reading.sizes)[number]
    symbolic = bounds(reading.program, equation, {})[number]
    sizes = " = ".join(dict.fromkeys(_size(size) for size in (symbolic.size, known.size) if size is not None))
    facts = f"size {sizes or 'unknown'}" + (f", by {symbolic.origin}" if symbolic.origin else "")
    return f"label **{equation.labels[number].name}** of {equation.name}: {facts}"


def _size(size: SizeExpr) -> str:
    return f"{size.value:,}" if isinstance(size, SizeLiteral) else size_text(size)
