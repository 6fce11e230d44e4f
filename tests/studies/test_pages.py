"""The pages of studies show what their scripts compute."""

from __future__ import annotations

from types import ModuleType

import pytest

import batches
import eindecomp
import language_models
import pages
import policies
import scaling
from einturnip.cost.described_machines import described

AGAIN = "numbers changed: run the page's command again, and correct its text"


@pytest.mark.parametrize(
    "study", [policies, batches, eindecomp, scaling, language_models], ids=lambda study: study.__name__
)
def test_tables_and_picture_are_those_of_the_numbers(study: ModuleType) -> None:
    numbers, page = pages.stored(study.PAGE), study.PAGE.read_text()
    assert pages.with_tables(page, study.tables(numbers)) == page
    assert study.PAGE.with_suffix(".svg").read_text() == study.picture(numbers)


@pytest.mark.parametrize("policy", [pytest.param("ours", marks=pytest.mark.slow), "flexgen"])
def test_a_cell_of_policies_is_what_the_script_computes(policy: str) -> None:
    numbers = pages.stored(policies.PAGE)
    machine = described(numbers["machine"])
    work = policies.workload("llama", machine)
    cell = numbers["programs"]["llama"]["budgets"]["12%"][policy]
    found = policies.row(work, machine, 0.12, policy, 1, (0.0,))
    assert found is not None
    assert (found.percent[0], found.bytes_over_bound) == pytest.approx(
        (cell["percent"][0], cell["bytes_over_bound"]), abs=0.051
    ), AGAIN


@pytest.mark.parametrize("name", eindecomp.STUDIES)
def test_a_column_of_eindecomp_is_what_the_script_computes(name: str) -> None:
    assert eindecomp.gigabytes(name, 8) == pages.stored(eindecomp.PAGE)[name]["8"], AGAIN


def test_a_cell_of_batches_is_what_the_script_computes() -> None:
    name = "training, 2 GiB"
    found = batches.cell(name, 32768, "turnip")
    assert found == pytest.approx(pages.stored(batches.PAGE)[name]["percent"]["32768"]["turnip"], abs=0.051), AGAIN


def test_a_cell_of_language_models_is_what_the_script_computes() -> None:
    found = language_models.cell("prefill 7B", (16, 1024), 8, "flexgen")
    assert found == pytest.approx(pages.stored(language_models.PAGE)["prefill 7B"]["16 x 1024"]["8 GiB"]["flexgen"]), (
        AGAIN
    )


def test_a_cell_of_scaling_is_what_the_script_computes() -> None:
    for name, (program, dims) in scaling.STUDIES.items():
        assert scaling.ideal(program, dims[64], 64) == pages.stored(scaling.PAGE)[name]["64"]["ideal"], AGAIN
    found = scaling.simulated("ladder", {"o": 40, "v": 200}, 4)
    assert found == pytest.approx(pages.stored(scaling.PAGE)["CCSD ladder, strong"]["4"]["simulated"], rel=0.01), AGAIN
