"""One plan that is right, and ways to make it wrong: the order of its ops, where values stand, extents and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from einturnip.verify.types import Rule
from tests.verify.plans import Json, op, plan_of

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
