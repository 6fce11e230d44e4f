"""The ratchet on wording: what is counted, and that counts may only fall."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose_check
from tests.prose_check import DUPLICATES, FILES, SUMMARIES, UNLISTED, compare, counted


def test_what_is_counted(tmp_path: Path) -> None:
    package = tmp_path / "einturnip"
    package.mkdir()
    harness = tmp_path / "docs/benchmarks/harness"
    harness.mkdir(parents=True)
    (tmp_path / "docs/page.md").write_text("It hangs on the size, so many bytes. So many!\n")
    sentence = "# It hangs on the size.\n"
    (tmp_path / "docs/benchmarks/run.md").write_text(sentence)
    (package / "a.py").write_text(f'"""{"x" * 101}"""\n\n\nclass Part:\n    """{"y" * 100}"""\n\n\nclass _Own: ...\n')
    (harness / "c.py").write_text(f"{sentence}class Part: ...\n")
    (package / "b.py").write_text("class Part: ...\n\n\nclass _Own: ...\n")
    assert {name: count for name, count in counted(tmp_path).items() if count} == {
        "hangs on (depends on)": 2,
        "so many (a count)": 2,
        DUPLICATES: 2,
        SUMMARIES: 1,
    }


def test_files_are_short_and_packages_are_in_the_table(tmp_path: Path) -> None:
    package = tmp_path / "einturnip"
    for name in ("known/inner", "known/hidden", "unknown"):
        (package / name).mkdir(parents=True)
    for folder in (package / "known", package / "known/inner", package / "known/hidden", package / "unknown"):
        (folder / "__init__.py").write_text("")
    (package / "long.py").write_text("x = 1\n" * 401)
    table = "| package | |\n|---|---|\n| `known` | `inner` |\n| `long`, `gone` | |\n"
    (tmp_path / "ARCHITECTURE.md").write_text(f"# A\n\n## Packages\n\n{table}\n## Next\n\n| `other` | |\n")
    counts = counted(tmp_path)
    assert (counts[FILES], counts[UNLISTED]) == (1, 3)  # gone, unknown, known.hidden


def test_counts_may_only_fall(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare({"a": 2, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 1}) == (["a: 2, at most 1"], ["b: 1, stored as 2"])
    stored = dict.fromkeys([*prose_check.PHRASES, DUPLICATES, SUMMARIES], 3)
    for change, code, said in [(0, 0, ""), (1, 1, "more than before"), (-1, 0, "--update")]:
        monkeypatch.setattr(prose_check, "counted", lambda _, by=change: stored | {DUPLICATES: stored[DUPLICATES] + by})
        monkeypatch.setattr(prose_check.json, "loads", lambda _: stored)
        assert prose_check.main([]) == code
        assert said in capsys.readouterr().out
