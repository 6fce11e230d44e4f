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
import slices
from einturnip.cost.described_machines import described
from offload_policies import MemoryBudgets
from offload_policies.trace import trace

AGAIN = "numbers changed: run the page's command again, and correct its text"


@pytest.mark.parametrize(
    "study", [policies, batches, eindecomp, scaling, language_models], ids=lambda study: study.__name__
)
def test_tables_and_picture_are_those_of_the_numbers(study: ModuleType) -> None:
    numbers, page = pages.stored(study.PAGE), study.PAGE.read_text()
    assert pages.with_tables(page, study.tables(numbers)) == page
    assert study.PAGE.with_suffix(".svg").read_text() == study.picture(numbers)


def test_the_table_of_slices_is_that_of_the_numbers() -> None:
    page = slices.PAGE.read_text()
    assert pages.with_tables(page, slices.tables(pages.stored(slices.PAGE))) == page


def test_a_cell_of_slices_is_what_the_script_computes() -> None:
    found = slices.cell(policies.workload("mlp_training", described(slices.MACHINE)), 0.12)
    assert found == pages.stored(slices.PAGE)["mlp_training"]["12%"], AGAIN


def test_slices_leave_as_far_as_bytes_are_missing() -> None:
    work = policies.workload("mlp_training", described(slices.MACHINE))
    seen = trace(work.tasks(policies.AMPLE), described(slices.MACHINE), MemoryBudgets(policies.AMPLE, policies.AMPLE))
    memory = slices.DeviceMemory(seen, 4)
    v = next(v for v, size in enumerate(seen.size) if size >= 1 << 20 and not seen.stored[v])
    size = seen.size[v]
    memory.hold(v)
    assert memory.moved == 0 and memory.used == size
    memory.evict(v, 1, 4096)  # a quarter is written
    assert memory.moved == size // 4 and memory.used == size - size // 4 == memory.held[v]
    memory.hold(v)  # and read again
    memory.evict(v, 1, 4096)  # the second time it has a copy
    assert memory.moved == 2 * (size // 4)
    memory.evict(v, size, 4096)
    assert memory.moved == 2 * (size // 4) + size - size // 4 and memory.used == 0 and v not in memory.held


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


@pytest.mark.parametrize(("sites", "share"), [("64", 0.9), ("1024", 0.7)])
def test_products_keep_their_share_of_the_arithmetic_speed(sites: str, share: float) -> None:
    for name in ("product, strong", "product, weak"):
        cell = pages.stored(scaling.PAGE)[name][sites]
        assert scaling.efficiency(name, sites, cell["ideal"]) > 0.99
        assert scaling.efficiency(name, sites, cell["simulated"]) >= share
