"""Wrong programs: each reports the codes at the places that its first line says.

``# expect: E012 4:7, E020 5:1`` lists every diagnostic; ``# shapes: A=2x3`` and ``# dims: n=3`` on the next lines make
it a program that compiles and fails once its sizes are known.
"""

import re
from pathlib import Path

import pytest

from einturnip.core.diagnostics import MAX_LINE
from einturnip.core.errors import BindError, SourceError
from einturnip.eingraph.build.program import build
from einturnip.lang import compile_text

FOLDER = Path(__file__).parent.parent / "bad"
PROGRAMS = sorted(FOLDER.glob("*.ein"))
FOUND = re.compile(r"error\[(E\d+)\][^\n]*\n\s*--> [^\n]*?:(\d+):(\d+)$", re.MULTILINE)


def header(text: str, word: str) -> str:
    found = re.search(rf"^# {word}:(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def expected(text: str) -> list[str]:
    return [" ".join(item.split()) for item in header(text, "expect").split(",")]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_reports_what_it_expects(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    shapes, dims = header(text, "shapes"), header(text, "dims")
    if shapes or dims:
        program = compile_text(text, path.name)
        given = {name: tuple(map(int, shape.split("x"))) for name, shape in (s.split("=") for s in shapes.split())}
        values = {name: int(value) for name, value in (d.split("=") for d in dims.split())}
        with pytest.raises((SourceError, BindError)) as caught:
            build(program, given, values, {name: f"{name}.npy" for name in given})
        found = [f"{code} {line}:{column}" for code, line, column in FOUND.findall(str(caught.value))]
        assert sorted(found) == expected(text), str(caught.value)
        return
    with pytest.raises(SourceError) as error:
        compile_text(text, path.name)
    found = [f"{d.code} {d.span.line}:{d.span.column}" for d in error.value.diagnostics]
    assert found == expected(text), str(error.value)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_diagnostic_shows_its_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if header(text, "shapes") or header(text, "dims"):
        return
    with pytest.raises(SourceError) as error:
        compile_text(text, path.name)
    lines = text.split("\n")
    for diagnostic in error.value.diagnostics:
        shown = diagnostic.render()
        line, column = lines[diagnostic.span.line - 1], diagnostic.span.column - 1
        assert (line if len(line) <= MAX_LINE else line[max(0, column - 40) : column + 40]) in shown
        assert "^" in shown and f"{path.name}:{diagnostic.span.line}:{diagnostic.span.column}" in shown
        assert diagnostic.message and "None" not in shown


def test_there_are_many() -> None:
    compiled = [path for path in PROGRAMS if not re.search("^# (shapes|dims):", path.read_text("utf-8"), re.MULTILINE)]
    assert len(compiled) >= 34 and len(PROGRAMS) >= 40
