"""More ways to make the plan wrong: units, names and outputs."""

from __future__ import annotations

from einturnip.verify.types import Rule
from tests.verify.faults import CPU, DISK, FAULTS, X, Y, fault
from tests.verify.plans import Json, op

__all__ = ["FAULTS"]  # those of tests.verify.faults and these

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
