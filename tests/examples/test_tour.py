"""Each program of the tour prints what the tour shows below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "docs/tour.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tour_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "tour"}
    shown = 0
    for kind, text in BLOCK.findall(TOUR.read_text()):
        if kind == "python":
            capsys.readouterr()
            exec(compile(text, TOUR.name, "exec"), namespace)
        elif kind == "text":
            printed = capsys.readouterr().out
            assert printed == text
            shown += 1
    assert shown >= 19


def test_there_are_twenty_lessons() -> None:
    lessons = re.findall(r"^## (\d+)\. ", TOUR.read_text(), re.MULTILINE)
    assert lessons == [str(number) for number in range(1, 21)]
