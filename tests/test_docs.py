"""Every example on the pages is run: Python blocks, console sessions, and what the README's commands are made of."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from einturnip.cli.main import run as command_line

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "docs", ROOT / "docs/decisions", ROOT / "docs/studies")
PAGES = [ROOT / "README.md", *(page for folder in FOLDERS for page in sorted(folder.glob("*.md")))]
BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SEARCH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
ENVIRONMENT = os.environ | {"PYTHONPATH": SEARCH, "COLUMNS": "100", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Command:
    line: str
    expected: str
    code: int


def blocks(page):
    return [m.groupdict() for m in BLOCK.finditer(page.read_text())]


def commands(session):
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        line, _, rest = part.partition("\n")
        code = re.search(r"^\[exit (\d+)\]\n", rest, re.MULTILINE)
        yield Command(line, rest[: code.start()] if code else rest, int(code[1]) if code else 0)


def run(arguments, folder):
    return subprocess.run(arguments, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


def matches(expected, found):
    """``...`` stands for anything; what is shown is standard output, or standard error where a command fails."""
    pattern = ".*".join(re.escape(piece) for piece in expected.strip().split("..."))
    return re.fullmatch(pattern, found.strip(), re.DOTALL) is not None


def is_run(block):
    return block["kind"] in ("python", "console")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=p.name, marks=pytest.mark.slow if p.name == "clusters.md" else ())
        for p in PAGES
        if any(map(is_run, blocks(p)))
    ],
)
def test_examples_on_a_page_do_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for block in blocks(page):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
        elif block["kind"] == "python":
            exec(compile(block["text"], page.name, "exec"), namespace)
        elif block["kind"] == "console":
            for command in commands(block["text"]):
                name, *arguments = shlex.split(command.line)
                assert name == "einturnip", command.line
                done = run([sys.executable, "-m", "einturnip", *arguments], tmp_path)
                assert done.returncode == command.code, f"$ {command.line}\n{done.stderr}"
                found = done.stderr if command.code else done.stdout
                assert matches(command.expected, found), f"$ {command.line}\n{found}"


def test_every_page_with_a_session_or_python_is_found():
    assert {"README.md", "cli.md", "python.md", "index.md"} <= {p.name for p in PAGES if any(map(is_run, blocks(p)))}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("program", sorted((ROOT / "docs/examples").rglob("*.ein")), ids=lambda p: p.name)
def test_example_programs_check(program, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command_line(["check", str(program)]) == 0, capsys.readouterr().err


def test_readme_names_targets_that_make_has(tmp_path):
    session = next(b["text"] for b in blocks(ROOT / "README.md") if b["kind"] == "sh")
    targets = re.findall(r"^make (\w+)", session, re.MULTILINE)
    assert targets == ["demo", "check"]
    for target in targets:
        done = run(["make", "--dry-run", "-C", str(ROOT), f"VENV={tmp_path / 'venv'}", target], tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_demonstration_in_small(tmp_path):
    """``make demo`` with fewer images: the same program and scripts, data of its own."""
    pytest.importorskip("sklearn")
    example = ROOT / "docs/examples/diffusion"
    files = {"X": tmp_path / "digits.npy", "D": tmp_path / "diffusion.npy"}
    program = [sys.executable, "-m", "einturnip", "run", str(example / "diffusion.ein"), "--quiet"]
    steps = [
        [sys.executable, str(example / "prepare.py"), str(tmp_path), "600"],
        [*program, "-i", f"X={files['X']}", "-o", f"D={files['D']}", "--arena", "2MiB"],
        [sys.executable, str(example / "verify.py"), str(tmp_path)],
    ]
    for step in steps:
        done = run(step, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    files["D"].write_bytes(files["D"].read_bytes()[:-4096] + b"\0" * 4096)
    assert run(steps[-1], tmp_path).returncode == 1, "a wrong answer must not pass"
