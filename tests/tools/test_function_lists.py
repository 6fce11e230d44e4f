"""The lists of functions and aggregations in the documentation and the editor's grammar, written from the tables.

``pytest tests/tools/test_function_lists.py --update-golden`` writes them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from einturnip.core.package_data import folder
from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.ir.functions import ELEMENTWISE

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
GRAMMAR = folder("grammar") / "vscode" / "syntaxes" / "ein.tmLanguage.json"


def in_page(text: str) -> str:
    """The sentences of functions and aggregations, as lines of code of at most 100 characters."""
    lines = "\n".join(f"`{line}`" for line in textwrap.wrap(" ".join(ELEMENTWISE), 100))
    text = re.sub(r"(?<=\nFunctions of one number:\n)(`[\w ]+`\n?)+(?=\.\n)", lines, text)
    return re.sub(r"(?<=`agg\[labels\] term` with `)[\w ]+(?=`)", " ".join(AGGREGATIONS), text)


def in_grammar(text: str) -> str:
    """The patterns of words; each of their words ends at a boundary, so that their order is free."""
    words = "|".join([*ELEMENTWISE, "where", "grad"])
    text = re.sub(r"(?<=\\\\b\()exp\|[\w|]+\|grad(?=\)\\\\b)", words, text)
    return re.sub(r"(?<=\()((?:\?:)?)sum\|[\w|]+(?=\))", rf"\1{'|'.join(AGGREGATIONS)}", text)


@pytest.mark.parametrize(("path", "write"), [(PAGE, in_page), (GRAMMAR, in_grammar)], ids=["page", "grammar"])
def test_a_list_of_names(path: Path, write: Callable[[str], str], request: pytest.FixtureRequest) -> None:
    stored = path.read_text(encoding="utf-8")
    text = write(stored)
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
        stored = text
    assert text == stored, "run pytest tests/tools/test_function_lists.py --update-golden"
    assert all(re.search(rf"\b{name}\b", text) for name in (*ELEMENTWISE, *AGGREGATIONS))
