"""The table of numbers that tune choices: its rows are whole, its page is current, no other module has such numbers.

``pytest tests/tools/test_tuning.py --update-golden`` writes the page.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import einturnip

PACKAGE = Path(einturnip.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"
PARTS = ("search", "sites", "memory")
SEARCHED = ("cost", "eingraph", "memgraph", "planner", "runtime", "taskgraph", "tiling")
ROW = re.compile(r"\[([^\]]+)\] (.+)\. (Measured|Limit|Follows|Chosen)(: .+)?\.", re.DOTALL)
# Numbers that tune nothing, by kind.
MARKS = {  # of what is absent, free, apart or infinite, and of the kinds of memory
    "memgraph/arena.py": {"FREE"},
    "memgraph/eviction.py": {"NEVER", "SPACING"},
    "memgraph/types.py": {"HOST", "COMPUTE", "DISK", "FILES"},
    "runtime/host/index_origin.py": {"SAME_REGION"},
    "taskgraph/types.py": {"UNASSIGNED"},
    "tiling/device_assignment.py": {"FORBIDDEN"},
}
WIDTHS = {"planner/feasible.py": {"MAX_OPERATIONS"}, "taskgraph/columns.py": {"MAX_FLOPS"}}  # of integers
FORMATS = {
    "eingraph/printer.py": {"_NOT", "_NEG", "_ATOM"},
    "planner/codec.py": {"_COUNT", "_ALIGNED"},
    "planner/plan_store.py": {"FORMAT"},
}
RATES = {  # the points and sizes that rates in Machine were measured at
    "cost/machine.py": {"_UNKNOWN"},
    "cost/machine_defaults.py": {"SIDES", "TABLE_BITS"},
    "cost/transfer_time.py": {"READERS"},
    "planner/predict.py": {"WRITERS"},
}
MESSAGES = {"planner/feasible.py": {"MAX_SHOWN"}}  # characters
KINDS = (MARKS, WIDTHS, FORMATS, RATES, MESSAGES)


def is_number(value: ast.expr) -> bool:
    """Whether an expression consists of numbers and operators only, or of names of other constants."""
    match value:
        case ast.Constant(value=int() | float() as number):
            return not isinstance(number, bool)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return bool(parts) and all(map(is_number, parts))
        case ast.Name(id=name):
            return name.isupper()
        case _:
            return False


def numbers(path: Path) -> Iterator[str]:
    """Names of a module's numeric constants."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pairs = [(name, value)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pairs = [(name, value)]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = [(t.id, v) for t, v in zip(targets, values, strict=True) if isinstance(t, ast.Name)]
            case _:
                continue
        yield from (name for name, value in pairs if name.strip("_").isupper() and is_number(value))


def rows(part: str) -> Iterator[tuple[str, str, str]]:
    """Group, name with value, and text of each row of a part of the table."""
    text = (PACKAGE / "tuning" / f"{part}.py").read_text(encoding="utf-8")
    group, body = "", ast.parse(text).body[2:]
    headings = {at: line[2:] for at, line in enumerate(text.splitlines(), 1) if line.startswith("# ")}
    for row, words in zip(body[::2], body[1::2], strict=True):
        assert isinstance(row, ast.Assign) and isinstance(row.targets[0], ast.Name)
        assert isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant)
        group = headings.get(row.lineno - 1, group)
        yield group, ast.unparse(row), " ".join(str(words.value.value).split())


def page() -> str:
    """The page of all rows."""
    lines = [
        "# Numbers that tune choices",
        "",
        "This page is written from `einturnip/tuning`. The rates of a machine are not here: `einturnip doctor",
        "--calibrate` measures them. *Chosen* means that no measurement of the number is recorded.",
    ]
    last = ""
    for part in PARTS:
        for group, row, text in rows(part):
            if group != last:
                lines += ["", f"## {group}", "", "| number | unit | meaning | basis |", "|---|---|---|---|"]
                last = group
            found = ROW.fullmatch(text)
            assert found, f"{row}: {text!r} is not '[unit] Meaning. Basis.'"
            unit, meaning, basis, more = found.groups()
            lines.append(f"| `{row}` | {unit} | {meaning} | {basis.lower()}{more or ''} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_row(request: pytest.FixtureRequest) -> None:
    text = page()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "run pytest tests/tools/test_tuning.py --update-golden"


def test_every_row_has_its_own_name_and_a_reader() -> None:
    names = [row.split(" = ")[0] for part in PARTS for _, row, _ in rows(part)]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    words = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        words.update(set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text(encoding="utf-8"))))
    assert [name for name in names if words[name] < 2 and name not in derived()] == []


def derived() -> set[str]:
    """Rows that other rows are computed from."""
    values = [row.split(" = ")[1] for part in PARTS for _, row, _ in rows(part)]
    return {name for value in values for name in re.findall(r"[A-Z][A-Z0-9_]+", value)}


def test_no_other_module_has_numbers_that_tune() -> None:
    others = [
        f"{name}: {number}"
        for package in SEARCHED
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for name in [str(path.relative_to(PACKAGE))]
        for number in numbers(path)
        if not any(number in kind.get(name, ()) for kind in KINDS)
    ]
    assert others == [], "move them to einturnip/tuning, or say in this test why they tune nothing"


def test_every_exception_exists() -> None:
    for kind in KINDS:
        for name, exceptions in kind.items():
            assert exceptions <= set(numbers(PACKAGE / name)), name
