"""One plan that is right, and every way to make it wrong: the rule that it breaks, and the ops that are named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from einturnip.verify.types import Rule
from tests.verify.oracle import keeps_its_word, serial_faults
from tests.verify.plans import Json, op, plan_of, rules, verdict_of

CPU, DISK, X, Y = "cpu:0", "disk", "X", "Y"


def good() -> Json:
    """Two sums of two ops; between them the half-made one waits on disk. A stored tile is read again."""
    return plan_of(
        [
            op(0, "load", [(X, 0, 8, 1)], [(CPU, 0, 8, 1)]),
            op(1, "load", [(X, 8, 8, 2)], [(CPU, 8, 8, 2)]),
            op(2, "kernel", [(CPU, 0, 8, 1), (CPU, 16, 8, 3)], [(CPU, 16, 8, 3), (CPU, 24, 8, 100)], [0], 3),
            op(3, "kernel", [(CPU, 8, 8, 2), (CPU, 16, 8, 3)], [(CPU, 16, 8, 3), (CPU, 32, 8, 101)], [1], 3),
            op(4, "offload", [(CPU, 16, 8, 3)], [(DISK, 0, 8, 3)], [2, 3]),
            op(5, "load", [(X, 16, 4, 7, [[2, 8]])], [(CPU, 16, 8, 7)], [4]),
            op(6, "kernel", [(CPU, 16, 8, 7)], [(CPU, 40, 8, 8)], [5]),
            op(7, "reload", [(DISK, 0, 8, 3)], [(CPU, 16, 8, 3)], [6]),
            op(8, "kernel", [(CPU, 0, 8, 1), (CPU, 16, 8, 4)], [(CPU, 16, 8, 4)], [7], 4),
            op(9, "kernel", [(CPU, 40, 8, 8), (CPU, 16, 8, 4)], [(CPU, 16, 8, 4)], [7], 4),
            op(10, "aggregate", [(CPU, 16, 8, 4)], [(CPU, 48, 8, 5)], [8, 9]),
            op(11, "store", [(CPU, 48, 8, 5)], [(Y, 0, 2, 5, [[4, 4]])], [10]),
            op(12, "store", [(CPU, 40, 8, 8)], [(Y, 2, 2, 8, [[4, 4]])], [6]),
            op(13, "reload", [(Y, 2, 2, 8, [[4, 4]])], [(CPU, 0, 8, 8)], [8, 12]),
            op(14, "kernel", [(CPU, 0, 8, 8)], [(CPU, 56, 8, 9)], [13]),
            op(15, "store", [(CPU, 56, 8, 9)], [(Y, 16, 8, 9)], [14]),
        ]
    )


def test_the_good_plan_is_valid() -> None:
    verdict = verdict_of(good())
    assert verdict.valid and verdict.implied == 0 and not verdict.faults
    assert [(use.tier.name, use.nbytes) for use in verdict.uses] == [(CPU, 64), (DISK, 8), (X, 28), (Y, 24)]
    serial_faults(good())


Edit = Callable[[list[Json], Json], Any]
FAULTS: list[Any] = []


def fault(rule: Rule, *ops: int) -> Callable[[Edit], Edit]:
    """The edit breaks ``rule``, and one break names just these ops."""

    def note(edit: Edit) -> Edit:
        FAULTS.append(pytest.param(edit, rule, ops, id=edit.__name__))
        return edit

    return note


# --- order ---


@fault(Rule.RACE, 0, 2)
def a_kernel_does_not_wait_for_its_operand(ops: list[Json], plan: Json) -> None:
    ops[2]["after"] = []


@fault(Rule.RACE, 3, 4)
def an_offload_waits_for_one_of_two_ops_of_a_unit(ops: list[Json], plan: Json) -> None:
    ops[4]["after"] = [2]


@fault(Rule.RACE, 4, 5)
def bytes_are_written_again_before_they_are_offloaded(ops: list[Json], plan: Json) -> None:
    ops[5]["after"] = [2, 3]


@fault(Rule.RACE, 6, 7)
def a_reload_does_not_wait_for_a_reader_of_its_bytes(ops: list[Json], plan: Json) -> None:
    ops[7]["after"] = [5]


@fault(Rule.RACE, 7, 9)
def an_op_of_the_next_unit_does_not_wait_for_the_reload(ops: list[Json], plan: Json) -> None:
    ops[9]["after"] = [6]


@fault(Rule.RACE, 8, 13)
def a_residency_ends_while_it_is_read(ops: list[Json], plan: Json) -> None:
    ops[13]["after"] = [2, 12]


@fault(Rule.RACE, 12, 13)
def a_stored_tile_is_read_before_it_is_stored(ops: list[Json], plan: Json) -> None:
    ops[13]["after"] = [8]


@fault(Rule.RACE, 4, 7)
def a_reload_does_not_wait_for_the_offload(ops: list[Json], plan: Json) -> None:
    ops[5]["writes"][0][1] = ops[6]["reads"][0][1] = 56
    ops[5]["after"], ops[7]["after"] = [], [2, 3]
    ops[14]["after"] = [6, 13]


@fault(Rule.RACE, 2, 5)
def two_ops_without_order_use_one_workspace(ops: list[Json], plan: Json) -> None:
    ops[5]["writes"][0][1] = ops[6]["reads"][0][1] = 24
    ops[5]["after"], ops[7]["after"] = [], [4]


@fault(Rule.CYCLE, 6, 7, 9)
def three_ops_wait_for_each_other(ops: list[Json], plan: Json) -> None:
    ops[6]["after"] = [5, 9]


@fault(Rule.CYCLE, 10)
def an_op_waits_for_itself(ops: list[Json], plan: Json) -> None:
    ops[10]["after"] = [8, 9, 10]


# --- where values stand ---


@fault(Rule.WRONG_VALUE, 1, 14)
def an_operand_is_read_a_byte_off(ops: list[Json], plan: Json) -> None:
    ops[14]["reads"][0][1] = 1


@fault(Rule.WRONG_VALUE, 0, 2)
def the_offsets_of_two_operands_are_swapped(ops: list[Json], plan: Json) -> None:
    ops[0]["writes"][0][1], ops[1]["writes"][0][1] = 8, 0
    ops[0]["after"], ops[2]["after"], ops[3]["after"] = [], [0, 1], [0, 1]
    ops[2]["reads"][0][1] = 8
    ops[2]["reads"][0][3] = 2


@fault(Rule.WRONG_VALUE, 7, 8)
def a_reader_is_moved_out_of_its_residency(ops: list[Json], plan: Json) -> None:
    ops[8]["reads"][0] = [CPU, 16, 8, 7]
    ops[8]["unit"], ops[8]["writes"] = None, [[CPU, 32, 8, 50]]
    ops[8]["after"] = [3, 7]


@fault(Rule.WRONG_VALUE, 7, 20)
def a_reload_from_a_copy_that_was_written_over(ops: list[Json], plan: Json) -> None:
    ops.insert(7, op(20, "offload", [(CPU, 8, 8, 2)], [(DISK, 0, 8, 2)], [1, 4]))
    ops[8]["after"] = [6, 20]


@fault(Rule.WRONG_VALUE, 7)
def a_reload_from_where_nothing_was_written(ops: list[Json], plan: Json) -> None:
    ops[7]["reads"][0][1] = 64


@fault(Rule.WRONG_VALUE, 12, 13)
def a_stored_tile_is_read_under_another_name(ops: list[Json], plan: Json) -> None:
    ops[13]["reads"][0][3] = ops[13]["writes"][0][3] = ops[14]["reads"][0][3] = 5


@fault(Rule.WRONG_VALUE, 13)
def a_stored_tile_is_read_with_another_stride(ops: list[Json], plan: Json) -> None:
    ops[13]["reads"][0][4] = [[4, 6]]


@fault(Rule.WRONG_VALUE, 5, 6)
def a_value_has_lost_its_last_byte(ops: list[Json], plan: Json) -> None:
    ops.insert(6, op(20, "load", [(X, 64, 8, 60)], [(CPU, 23, 8, 60)], [2, 5]))
    ops.insert(7, op(21, "kernel", [(CPU, 23, 8, 60)], [(CPU, 31, 8, 61)], [3, 20]))
    ops.insert(8, op(22, "store", [(CPU, 31, 8, 61)], [(Y, 24, 8, 61)], [21]))
    ops[9]["after"] = [20]
    ops[10]["after"] = [6, 21]


@fault(Rule.WRONG_VALUE, 5)
def a_value_is_read_that_nothing_makes(ops: list[Json], plan: Json) -> None:
    ops[5] = op(5, "reload", [(DISK, 32, 8, 7)], [(CPU, 16, 8, 7)], [4])


@fault(Rule.WRONG_VALUE, 21, 22)
def a_value_is_read_after_it_was_dropped(ops: list[Json], plan: Json) -> None:
    ops.append(op(21, "drop", [(CPU, 56, 8, 9)], (), [15]))
    ops.append(op(22, "store", [(CPU, 56, 8, 9)], [(Y, 24, 8, 9)], [21]))


@fault(Rule.RACE, 15, 21)
def a_value_is_dropped_while_it_is_stored(ops: list[Json], plan: Json) -> None:
    ops.append(op(21, "drop", [(CPU, 56, 8, 9)], (), [14]))


# --- extents and sizes ---


@fault(Rule.SIZE, 6)
def a_read_is_shorter_than_its_value(ops: list[Json], plan: Json) -> None:
    ops[6]["reads"][0][2] = 4


@fault(Rule.SIZE, 14)
def a_read_goes_past_the_end_of_its_value(ops: list[Json], plan: Json) -> None:
    ops[14]["reads"][0][2] = 9


@fault(Rule.SIZE, 7)
def a_reload_fills_less_than_was_offloaded(ops: list[Json], plan: Json) -> None:
    ops[7]["reads"][0][2] = ops[7]["writes"][0][2] = 4


@fault(Rule.TRANSFER, 5)
def a_load_fills_more_than_it_reads(ops: list[Json], plan: Json) -> None:
    ops[5]["reads"][0][4] = [[3, 8]]


@fault(Rule.TRANSFER, 4)
def an_offload_calls_what_it_carries_another_value(ops: list[Json], plan: Json) -> None:
    ops[4]["writes"][0][3] = ops[7]["reads"][0][3] = 33


@fault(Rule.TRANSFER, 4)
def an_offload_reads_two_extents(ops: list[Json], plan: Json) -> None:
    ops[4]["reads"].append([CPU, 8, 8, 2])


@fault(Rule.TRANSFER, 6)
def a_store_leaves_less_than_it_reads_in_memory(ops: list[Json], plan: Json) -> None:
    ops[6]["kind"] = "store"
    for x, side in ((6, "writes"), (9, "reads"), (12, "reads")):
        ops[x][side][0][2] = 4
    ops[12]["writes"][0] = [Y, 2, 2, 8, [[2, 6]]]
    ops[13]["reads"][0] = [Y, 2, 2, 8, [[2, 6]]]
    ops[13]["writes"][0][2] = ops[14]["reads"][0][2] = 4


@fault(Rule.TRANSFER, 21)
def a_drop_writes(ops: list[Json], plan: Json) -> None:
    ops.append(op(21, "drop", [(CPU, 56, 8, 9)], [(CPU, 56, 8, 90)], [15]))


@fault(Rule.CAPACITY, 14)
def the_memory_is_one_byte_too_small(ops: list[Json], plan: Json) -> None:
    plan["tiers"][0]["capacity"] = 63


@fault(Rule.CAPACITY, 0)
def an_extent_begins_below_the_first_byte(ops: list[Json], plan: Json) -> None:
    ops[0]["writes"][0][1] = ops[2]["reads"][0][1] = ops[8]["reads"][0][1] = -1


@fault(Rule.CAPACITY, 5)
def a_strided_read_ends_behind_its_file(ops: list[Json], plan: Json) -> None:
    plan["tiers"][2]["capacity"] = 27


@fault(Rule.OVERLAP, 2)
def a_workspace_lies_over_an_operand(ops: list[Json], plan: Json) -> None:
    ops[2]["writes"][1][1] = 4


@fault(Rule.OVERLAP, 6)
def a_kernel_works_in_place(ops: list[Json], plan: Json) -> None:
    ops[6]["writes"][0][1] = 16
    ops[12]["reads"][0][1] = 16


@fault(Rule.OVERLAP, 2)
def a_workspace_lies_over_the_accumulator(ops: list[Json], plan: Json) -> None:
    ops[2]["writes"][1][1] = 17


# --- units ---


@fault(Rule.UNIT, 2)
def an_op_of_a_unit_does_not_read_the_sum(ops: list[Json], plan: Json) -> None:
    ops[2]["reads"].pop()


@fault(Rule.UNIT, 2, 3)
def the_ops_of_a_unit_have_two_extents(ops: list[Json], plan: Json) -> None:
    ops[3]["reads"][1][1] = ops[3]["writes"][0][1] = 56
    ops[14]["after"] = [3, 13]


@fault(Rule.UNIT, 8, 9)
def the_ops_of_a_unit_make_two_values(ops: list[Json], plan: Json) -> None:
    ops[9]["reads"][1][3] = ops[9]["writes"][0][3] = 44


@fault(Rule.UNIT, 4)
def a_transfer_is_of_a_unit(ops: list[Json], plan: Json) -> None:
    ops[4]["unit"] = 3


@fault(Rule.UNIT, 3)
def an_op_reads_the_sum_elsewhere(ops: list[Json], plan: Json) -> None:
    ops[3]["reads"][1][1] = 48


@fault(Rule.UNIT, 2)
def an_op_accumulates_twice(ops: list[Json], plan: Json) -> None:
    ops[2]["reads"].append([CPU, 24, 8, 100])


@fault(Rule.UNIT, 8)
def a_unit_accumulates_in_a_file(ops: list[Json], plan: Json) -> None:
    for x in (8, 9):
        ops[x]["reads"][1] = ops[x]["writes"][0] = [Y, 24, 8, 4]
    ops[10]["reads"][0] = [Y, 24, 8, 4]


@fault(Rule.RACE, 2, 3)
def a_unit_is_split(ops: list[Json], plan: Json) -> None:
    ops[3]["unit"] = 33
    ops[3]["reads"][1][3] = ops[3]["writes"][0][3] = 33


@fault(Rule.LOST, 2)
def the_second_half_of_a_unit_begins_anew(ops: list[Json], plan: Json) -> None:
    a_unit_is_split(ops, plan)
    ops[3]["after"] = [1, 2]
    ops[4]["reads"][0][3] = ops[4]["writes"][0][3] = 33
    ops[7]["reads"][0][3] = ops[7]["writes"][0][3] = 33


@fault(Rule.MADE_TWICE, 2, 3)
def an_op_leaves_its_unit(ops: list[Json], plan: Json) -> None:
    ops[3]["unit"] = None


@fault(Rule.RACE, 2, 6)
def two_units_share_bytes(ops: list[Json], plan: Json) -> None:
    ops[6]["unit"] = 8
    ops[6]["writes"][0][1] = ops[9]["reads"][0][1] = ops[12]["reads"][0][1] = 17
    ops[6]["reads"] = [[CPU, 17, 8, 8]]
    ops[6]["after"] = []


@fault(Rule.HALF_MADE, 4, 21)
def a_half_made_sum_is_offloaded_and_its_unit_goes_on(ops: list[Json], plan: Json) -> None:
    ops.insert(5, op(21, "kernel", [(CPU, 16, 8, 3)], [(CPU, 16, 8, 3)], [4], 3))
    ops[6]["after"] = [21]


@fault(Rule.WRONG_VALUE, 21, 3)
def another_op_writes_between_two_ops_of_a_unit(ops: list[Json], plan: Json) -> None:
    ops.insert(3, op(21, "kernel", [(CPU, 0, 8, 1)], [(CPU, 23, 1, 70), (CPU, 56, 8, 71)], [2]))
    ops.insert(4, op(22, "store", [(CPU, 56, 8, 71)], [(Y, 24, 8, 71)], [21]))
    ops[5]["after"] = [1, 21]
    ops[-2]["after"] = [13, 22]
    ops[-3]["after"] = [8, 12, 21]


@fault(Rule.LOST, 2, 3)
def a_half_made_sum_comes_back_elsewhere(ops: list[Json], plan: Json) -> None:
    ops[7]["writes"][0][1] = 56
    ops[14]["after"] = [7, 13]


@fault(Rule.LOST, 8, 9)
def the_half_made_sum_is_stored_for_the_whole(ops: list[Json], plan: Json) -> None:
    ops[10]["reads"][0] = [CPU, 32, 8, 3]
    ops.append(op(21, "reload", [(DISK, 0, 8, 3)], [(CPU, 32, 8, 3)], [4]))
    ops[10]["after"] = [21]


# --- names ---


@fault(Rule.MADE_TWICE, 6, 14)
def two_ops_make_one_value(ops: list[Json], plan: Json) -> None:
    ops[14]["writes"][0][3] = ops[15]["reads"][0][3] = ops[15]["writes"][0][3] = 8
    ops[14]["reads"][0] = [CPU, 40, 8, 8]


@fault(Rule.MADE_TWICE, 0, 5)
def a_value_lies_at_two_places_of_an_input(ops: list[Json], plan: Json) -> None:
    ops[5]["reads"][0][3] = ops[5]["writes"][0][3] = ops[6]["reads"][0][3] = 1


@fault(Rule.MADE_TWICE, 1, 6)
def an_op_makes_what_an_input_holds(ops: list[Json], plan: Json) -> None:
    for x, side in ((6, "writes"), (9, "reads"), (12, "reads"), (12, "writes"), (13, "reads"), (13, "writes")):
        ops[x][side][0][3] = 2
    ops[14]["reads"][0][3] = 2


@fault(Rule.MADE_TWICE, 10, 14)
def a_store_gives_one_name_to_two_values(ops: list[Json], plan: Json) -> None:
    ops[15]["writes"][0][3] = 5


@fault(Rule.INPUT, 12)
def an_input_is_written(ops: list[Json], plan: Json) -> None:
    ops[12]["writes"][0][:2] = [X, 64]
    ops[13]["reads"][0][:2] = [X, 64]


# --- outputs ---


@fault(Rule.STORED_TWICE, 15, 21)
def a_tile_is_stored_twice(ops: list[Json], plan: Json) -> None:
    ops.append(op(21, "store", [(CPU, 56, 8, 9)], [(Y, 16, 8, 9)], [15]))


@fault(Rule.STORED_TWICE, 11, 12)
def two_tiles_overlap_by_a_byte_a_row(ops: list[Json], plan: Json) -> None:
    ops[12]["writes"][0][1] = ops[13]["reads"][0][1] = 1


@fault(Rule.STORED_TWICE, 12)
def the_rows_of_a_tile_overlap(ops: list[Json], plan: Json) -> None:
    ops[12]["writes"][0] = [Y, 24, 2, 8, [[4, 1]]]
    ops[13]["reads"][0] = [Y, 24, 2, 8, [[4, 1]]]


@fault(Rule.NOT_STORED, 11)
def a_tile_of_the_output_is_missing(ops: list[Json], plan: Json) -> None:
    del ops[12]
    ops[12]["reads"][0] = [CPU, 40, 8, 8]
    ops[12]["kind"] = "move"
    ops[12]["after"] = [8, 6]


@fault(Rule.LOST, 14)
def the_last_tile_of_the_output_is_missing(ops: list[Json], plan: Json) -> None:
    del ops[15]


@fault(Rule.NOT_STORED, 15)
def an_output_ends_too_soon(ops: list[Json], plan: Json) -> None:
    plan["tiers"][3]["capacity"] = 32


@fault(Rule.NOT_STORED)
def nothing_is_stored_of_an_output(ops: list[Json], plan: Json) -> None:
    plan["tiers"].append({"id": "Z", "kind": "output", "capacity": 8})


@fault(Rule.NOT_STORED, 12, 15)
def tiles_leave_a_gap(ops: list[Json], plan: Json) -> None:
    ops[15]["writes"][0][1] = 17


@fault(Rule.LOST, 21)
def a_kernel_works_for_nothing(ops: list[Json], plan: Json) -> None:
    ops.append(op(21, "kernel", [(CPU, 56, 8, 9)], [(CPU, 40, 8, 77)], [9, 12, 14]))


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
    # These are of one device; test_several has what only several can break.
    assert {param.values[1] for param in FAULTS} == set(Rule) - {Rule.DEVICE}


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
