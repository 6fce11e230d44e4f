"""docs/gradients.md: a row for every scalar function and aggregation, each with a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from einturnip.ir.aggregations import AGGREGATIONS
from einturnip.ir.functions import FUNCTIONS
from tests.gradients import test_conventions, test_language
from tests.gradients.pytorch import BINARY, COMPLEX, REAL

PAGE = (Path(__file__).parents[2] / "docs" / "gradients.md").read_text(encoding="utf-8")
# As they are written between numbers.
SIGNS = ("x + z", "x - z", "-x", "x * z", "x / z", "x ^ z", "x % z", "x // z", "min(x, z, ...)", "max(...)")


def _rows(section: str) -> dict[str, list[str]]:
    """The tests that each name of a section's table has in its row."""
    found: dict[str, list[str]] = {}
    for line in PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0].splitlines():
        if line.startswith("| ") and "`test" in line:
            cells = line.strip("|").split("|")
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name] = re.findall(r"`(test_\w+)`", cells[-1])
    return found


def test_the_page_names_every_function_with_its_test() -> None:
    rows = _rows("Functions")
    lacking = ((FUNCTIONS - {"neg"}) | set(SIGNS)) - set(rows)
    assert not lacking, f"docs/gradients.md: add {lacking} to the table of functions"
    for name, tests in rows.items():
        if "test_a_function" in tests:
            assert name in REAL, name
        if "test_a_function_of_complex_numbers" in tests:
            assert name in set(COMPLEX) | {"real", "imag"}, name
        if "test_an_operator" in tests:
            sign = re.sub(r"\bx\b", "a", name.replace("x, z, ...", "a, b")).replace("...", "a, b")
            assert re.sub(r"\bz\b", "b", sign) in BINARY, name


def test_the_page_names_every_aggregation_with_its_test() -> None:
    assert set(_rows("Aggregations")) == set(AGGREGATIONS)


@pytest.mark.parametrize("section", ["Functions", "Aggregations"])
def test_the_tests_that_the_page_names_are_there(section: str) -> None:
    for name, tests in _rows(section).items():
        assert tests, name
        assert all(hasattr(test_conventions, test) or hasattr(test_language, test) for test in tests), name
