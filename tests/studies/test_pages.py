"""The pages of studies show what their scripts compute."""

from __future__ import annotations

import json

import pytest

import policies
from einturnip.cost.described_machines import described

AGAIN = "numbers changed: run the page's command again, and correct its text"


def test_the_tables_of_policies_are_those_of_their_numbers() -> None:
    stored = json.loads(policies.PAGE.with_suffix(".json").read_text())
    page = policies.PAGE.read_text()
    assert policies.with_tables(page, policies.tables(stored["programs"])) == page
    assert policies.PAGE.with_suffix(".svg").read_text() == policies.picture(stored["programs"])


@pytest.mark.parametrize("policy", ["ours", "flexgen"])
def test_a_cell_of_policies_is_what_the_script_computes(policy: str) -> None:
    stored = json.loads(policies.PAGE.with_suffix(".json").read_text())
    machine = described(stored["machine"])
    work = policies.workload("llama", machine)
    cell = stored["programs"]["llama"]["budgets"]["12%"][policy]
    found = policies.row(work, machine, 0.12, policy, 1, (0.0,))
    assert found is not None
    assert (found.percent[0], found.bytes_over_bound) == pytest.approx(
        (cell["percent"][0], cell["bytes_over_bound"]), abs=0.051
    ), AGAIN
