"""The tables of plans for many sites are those that the study's script computes."""

from __future__ import annotations

import json

import pages
import site_plans


def test_tables_are_those_of_the_numbers() -> None:
    page = site_plans.PAGE.read_text()
    assert pages.with_tables(page, site_plans.tables(json.loads(site_plans.NUMBERS.read_text()))) == page


def test_a_cell_is_what_the_script_computes() -> None:
    name = "CCSD ladder, o = 40, v = 200, f64"
    found, stored = site_plans.cell(name, 2), json.loads(site_plans.NUMBERS.read_text())[name]["2"]
    measured = ("cpu_seconds", "peak_mib")
    assert {k: x for k, x in found.items() if k not in measured} == {
        k: x for k, x in stored.items() if k not in measured
    }
