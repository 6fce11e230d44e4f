"""Programs in files are compiled once, until a file that they come from changes."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import pytest

from einturnip.api import program_cache
from einturnip.api.inputs import compile_path
from einturnip.core.errors import SourceError
from einturnip.lang import compile_text
from einturnip.planner import plan_store

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").rglob("*.ein"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(plan_store.SWITCH, str(tmp_path / "cache"))
    return tmp_path / "cache" / "programs"


def compiled_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the programs that are compiled from now on."""
    found: list[str] = []

    def compile_here(text, file="<text>"):
        found.append(file)
        return compile_text(text, file)

    monkeypatch.setattr(program_cache, "compile_text", compile_here)
    return found


@pytest.mark.parametrize("path", EXAMPLES[::5], ids=lambda path: path.stem)
def test_what_is_read_is_what_was_compiled(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_once(monkeypatch)
    first, again = compile_path(path), compile_path(path)
    assert compiled == [str(path)]
    assert repr(again) == repr(first) and again == first
    assert (again.file, again.source, again.files) == (first.file, first.source, first.files)
    assert [w.render() for w in again.warnings] == [w.render() for w in first.warnings]
    assert again.tensors == first.tensors and [t.span for t in again.tensors] == [t.span for t in first.tensors]
    assert all(a.dtype is b.dtype for a, b in zip(again.inputs, first.inputs, strict=True))


def test_a_change_is_seen_in_the_text_and_in_what_it_imports(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.ein").write_text("fn twice(x) = 2 * x\n")
    (tmp_path / "p.ein").write_text('import "f.ein"\ninput X : f32[n]\nY[i] = twice(X[i])\noutput Y\n')
    compiled = compiled_once(monkeypatch)
    first = compile_path(tmp_path / "p.ein")
    assert compile_path(tmp_path / "p.ein") == first and len(compiled) == 1
    (tmp_path / "f.ein").write_text("fn twice(x) = x + x\n")
    assert compile_path(tmp_path / "p.ein") != first and len(compiled) == 2
    (tmp_path / "f.ein").unlink()
    with pytest.raises(SourceError):
        compile_path(tmp_path / "p.ein")
    (tmp_path / "p.ein").write_text("input X : f32[n]\noutput X\n")
    assert compile_path(tmp_path / "p.ein") != first


def test_wrong_programs_are_not_kept(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "p.ein").write_text("input X : f32[n]\noutput Y\n")
    for _ in range(2):
        with pytest.raises(SourceError):
            compile_path(tmp_path / "p.ein")
    assert not cache.exists()


class Foreign:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    "held", [b"", b"nonsense", pickle.dumps(Foreign()), pickle.dumps(Path("x")), pickle.dumps((1, 2)), b"\x80\x05\x95"]
)
def test_what_is_damaged_or_foreign_is_compiled_anew(
    held: bytes, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.ein").write_text("input X : f32[n]\noutput X\n")
    first = compile_path(tmp_path / "p.ein")
    (file,) = cache.iterdir()
    file.write_bytes(held)
    monkeypatch.setattr(os, "system", lambda command: pytest.fail("ran what was read"))
    compiled = compiled_once(monkeypatch)
    assert compile_path(tmp_path / "p.ein") == first and len(compiled) == 1
    assert compile_path(tmp_path / "p.ein") == first and len(compiled) == 1


def test_a_torn_file_is_compiled_anew(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "p.ein").write_text("input X : f32[n, m]\nY[i] = max[j] X[i,j]\noutput Y\n")
    first = compile_path(tmp_path / "p.ein")
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for n in (1, 10, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:n])
        assert compile_path(tmp_path / "p.ein") == first
    file.write_bytes(whole.replace(struct.pack("<B", len("Input")) + b"Input", struct.pack("<B", 5) + b"Outpu"))
    assert compile_path(tmp_path / "p.ein") == first
