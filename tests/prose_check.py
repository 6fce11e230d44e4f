"""Counts wording and form that the project avoids, and fails where a count rises above the stored one.

The tree has such wording from before the rules were written. The counts are stored in prose_counts.json and may only
fall. ``python tests/prose_check.py`` checks, ``--update`` stores the present counts, ``--list NAME`` shows the lines.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_name("prose_counts.json")
LONGEST_SUMMARY = 100

HARNESS = "docs/benchmarks/harness"
PACKAGES = ("einturnip", HARNESS, "docs/studies/offload_policies")
"""Where classes and the first lines of docstrings are looked at."""

PHRASES = {
    "hangs on (depends on)": r"\b(hangs?|hung) on\b",
    "is told (receives, reports)": r"\b(is|are|was|were|be) told\b",
    "so many (a count)": r"\bso many\b",
    "made to measure": r"\bmade to measure\b",
    "made up for": r"\bmade up for\b",
    "its like": r"\b(its|their) like\b",
    "of those that": r"\bof those that\b",
    "who (for a thing)": r"\bwho (ends|waits|comes|asks|shares)\b",
    "What ... (as the subject of a definition)": r"^ *(\"\"\"|#) *What [a-z]",
    "beside (compared with, in addition to)": r"\bbeside (it|them|the|each|one|what|a)\b",
    "stands (is)": r"\bstands? (in|on|at|there|where|apart|beside|for itself)\b",
    "lies (is)": r"\b(lies?) (in|at|where|beside|apart|side by side)\b",
    "in turn (alternately)": r"\bin turn\b",
    "such as it is": r"\bsuch as it is\b",
    "wants (requires)": r"\bwant(s|ed)? (latest|for)\b",
    "goes on with": r"\bgoes on with\b",
    "by itself alone": r"\bby itself alone\b",
}
DUPLICATES = "public classes of one name"
SUMMARIES = f"first lines of docstrings over {LONGEST_SUMMARY} characters"
LONGEST_FILE = 400
FILES = f"Python files of more than {LONGEST_FILE} lines"
UNLISTED = "packages that ARCHITECTURE.md does not list, or lists and lacks"

Found = tuple[str, Path, int, str]
"""What is counted, where, and the line."""


def sources(root: Path) -> Iterator[Path]:
    """The files whose text is the project's own: pages of benchmarks quote measurements, others name the phrases."""
    folders = [root / name for name in ("einturnip", "grammar", "kernels", "tests", "docs")]
    files = [*root.glob("*.md"), *(path for folder in folders for path in folder.rglob("*"))]
    for path in sorted(files):
        named = path.name in (Path(__file__).name, "CONTRIBUTING.md")
        measurements = (root / "docs/benchmarks") in path.parents and (root / HARNESS) not in path.parents
        left_out = named or measurements or "node_modules" in path.parts
        if path.suffix in (".py", ".md", ".cuh", ".ein") and not left_out:
            yield path


def found(root: Path) -> Iterator[Found]:
    """Everything that is counted below a folder."""
    patterns = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PHRASES.items()}
    classes: Counter[str] = Counter()
    for path in sources(root):
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            for name, pattern in patterns.items():
                for _ in pattern.finditer(line):
                    yield name, path, number, line.strip()
        if path.suffix == ".py" and (length := text.count("\n")) > LONGEST_FILE:
            yield FILES, path, length, f"{length} lines"
        if path.suffix != ".py" or not any((root / package) in path.parents for package in PACKAGES):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                summary = (ast.get_docstring(node) or "").partition("\n")[0]
                if len(summary) > LONGEST_SUMMARY:
                    yield SUMMARIES, path, getattr(node, "lineno", 1), summary
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if classes[node.name]:
                    yield DUPLICATES, path, node.lineno, f"class {node.name}"
                classes[node.name] += 1


def unlisted(root: Path) -> Iterator[Found]:
    """Packages and modules of the top level, and subpackages, that the table and einturnip/ do not share."""
    page, package = root / "ARCHITECTURE.md", root / "einturnip"
    if not page.is_file():
        return
    table = page.read_text(encoding="utf-8").partition("\n## Packages\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    present = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    for name in sorted(named ^ {name for name in present if not name.startswith("__")}):
        yield UNLISTED, page, 1, name
    for row in rows:
        for name in re.findall(r"`(\w+)`", row[1]):
            inner = {path.parent.name for path in (package / name).glob("*/__init__.py")}
            for missing in sorted(inner - set(re.findall(r"`(\w+)`", row[2]))):
                yield UNLISTED, page, 1, f"{name}.{missing}"


def counted(root: Path) -> dict[str, int]:
    """The count of each phrase and of each fault of form; 0 where there is none."""
    counts = dict.fromkeys([*PHRASES, DUPLICATES, SUMMARIES, FILES, UNLISTED], 0)
    for name, *_ in everything(root):
        counts[name] += 1
    return counts


def everything(root: Path) -> Iterator[Found]:
    """All that is counted."""
    yield from found(root)
    yield from unlisted(root)


def compare(counts: dict[str, int], stored: dict[str, int]) -> tuple[list[str], list[str]]:
    """What rose, which is an error, and what fell."""
    rose, fell = list[str](), list[str]()
    for name, count in counts.items():
        if count > stored.get(name, 0):
            rose.append(f"{name}: {count}, at most {stored.get(name, 0)}")
        elif count < stored.get(name, 0):
            fell.append(f"{name}: {count}, stored as {stored[name]}")
    return rose, fell


def main(arguments: list[str]) -> int:
    """The exit code: 1 where a count rose."""
    if arguments[:1] == ["--list"]:
        for name, path, number, line in everything(ROOT):
            if name.startswith(tuple(arguments[1:])):
                print(f"{path.relative_to(ROOT)}:{number}: {line[:120]}")
        return 0
    counts = counted(ROOT)
    if arguments == ["--update"]:
        STORED.write_text(json.dumps(counts, indent=2) + "\n")
        return 0
    rose, fell = compare(counts, json.loads(STORED.read_text()))
    for line in rose:
        print(f"more than before: {line}")
    if rose:
        print("Rewrite the new lines (CONTRIBUTING.md says how); python tests/prose_check.py --list NAME shows them.")
    for line in fell:
        print(f"fewer than before: {line}")
    if fell and not rose:
        print("Lower the stored counts: python tests/prose_check.py --update")
    return 1 if rose else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
