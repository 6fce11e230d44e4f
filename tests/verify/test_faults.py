"""One right plan, and every way to damage it: the broken rule, and the ops that the fault names."""

from __future__ import annotations

import copy

import pytest

from einturnip.verify.types import Rule
from tests.verify.faults import CPU, DISK, Edit, X, Y, good
from tests.verify.faults_of_results import FAULTS
from tests.verify.oracle import keeps_its_word, serial_faults
from tests.verify.plans import rules, verdict_of


def test_the_good_plan_is_valid() -> None:
    verdict = verdict_of(good())
    assert verdict.valid and verdict.implied == 0 and not verdict.faults
    assert [(use.tier.name, use.nbytes) for use in verdict.uses] == [(CPU, 64), (DISK, 8), (X, 28), (Y, 24)]
    serial_faults(good())


@pytest.mark.parametrize(("edit", "rule", "ops"), FAULTS)
def test_a_fault_is_found(edit: Edit, rule: Rule, ops: tuple[int, ...]) -> None:
    plan = good()
    edit(plan["ops"], plan)
    verdict = verdict_of(plan)
    assert rule in verdict.counts, [fault.text for fault in verdict.faults]
    named = [sorted(int(verdict.ids[x]) for x in fault.ops) for fault in verdict.faults if fault.rule is rule]
    assert sorted(ops) in named, [fault.text for fault in verdict.faults]


@pytest.mark.parametrize(("edit", "rule", "ops"), FAULTS)
def test_running_it_goes_wrong_too(edit: Edit, rule: Rule, ops: tuple[int, ...]) -> None:
    plan = good()
    edit(plan["ops"], plan)
    assert keeps_its_word(plan) is not None


def test_there_are_many_faults() -> None:
    assert len(FAULTS) >= 50
    # These are of one device; test_several and tests/sites have what only several can break.
    assert {param.values[1] for param in FAULTS} == set(Rule) - {Rule.DEVICE, Rule.LOCAL, Rule.WIRE}


def test_all_faults_are_told_up_to_the_limit() -> None:
    plan = good()
    for x in plan["ops"]:
        x["after"] = []
    many = verdict_of(plan)
    few = verdict_of(plan, limit=2)
    assert many.counts == few.counts
    assert len([f for f in many.faults if f.rule is Rule.RACE]) > 5
    assert len([f for f in few.faults if f.rule is Rule.RACE]) == 2


def test_what_an_output_must_have_in_all() -> None:
    assert rules(good(), {"Y": 24}) == set()
    assert rules(good(), {"Y": 25}) == {Rule.NOT_STORED}


def test_a_fault_says_which_ops_and_which_bytes() -> None:
    plan = good()
    plan["ops"][4]["after"] = [2]
    (told,) = verdict_of(plan).faults
    assert str(told.place) == "cpu:0[16:24]"
    assert told.text == (
        "op 3 (kernel, task 3) writes value 3 at cpu:0[16:24] and op 4 (offload, task 4) reads value 3 at "
        "cpu:0[16:24]: both use cpu:0[16:24], and neither waits for the other"
    )


def test_names_are_only_names_and_the_list_has_no_order() -> None:
    plan = good()
    plan["ops"].reverse()
    assert verdict_of(plan).valid
    assert verdict_of(plan).implied == 0
    doubled = copy.deepcopy(good())
    doubled["ops"][10]["after"] = [8, 9, 9, 7]
    assert verdict_of(doubled).implied == 2
