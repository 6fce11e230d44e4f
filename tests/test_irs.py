"""Every floor can be evaluated, and all floors agree with the oracle: the main test.

A floor is one function from a drawn case to its outputs. Add one line to FLOORS for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import einturnip
from einturnip import CapacityError, RunError, SourceError
from einturnip.cost.machine import Machine
from einturnip.eingraph import check as eingraph_check
from einturnip.eingraph.build import program as eingraph_build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import ConcatNode, EinGraph, InputNode
from einturnip.ir.einsum import Box, Einsum
from einturnip.ir.region import Region
from einturnip.kernels.protocol import Mode
from einturnip.kernels.select import compile_kernel
from einturnip.lang import compile_text
from einturnip.lang import program as lang
from einturnip.lang.printer import show
from einturnip.memgraph import build as memgraph_build
from einturnip.memgraph import check as memgraph_check
from einturnip.memgraph.types import MemGraph
from einturnip.taskgraph import build as taskgraph_build
from einturnip.taskgraph import check as taskgraph_check
from einturnip.taskgraph.types import TaskGraph
from einturnip.testing import Answer, DrawnCase, assert_agrees, evaluate, failing_programs, programs
from einturnip.testing.strategies import FEATURES
from einturnip.tiling import build as decomp_build
from einturnip.tiling import check as decomp_check
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.types import Decomposition
from tests.reference import decomposition as decomp_values
from tests.reference import eingraph as eingraph_values
from tests.reference import memgraph as memgraph_values
from tests.reference import program as lang_values
from tests.reference import program_check as lang_check
from tests.reference import taskgraph as taskgraph_values

pytestmark = pytest.mark.timeout(900)  # a case that fails takes minutes to shrink

Array = np.ndarray[Any, np.dtype[Any]]
Outputs = dict[str, Array]
MACHINE = Machine(workers=2)


# --- one function a floor: the value, after its check -----------------------------------------------------------------


def program_of(case: DrawnCase) -> lang.TypedProgram:
    program = compile_text(case.text, "drawn.ein")
    lang_check.check(program)
    return program


def graph_of(case: DrawnCase, program: lang.TypedProgram | None = None) -> EinGraph:
    shapes = {name: array.shape for name, array in case.inputs.items()}
    origins = {name: f"{name}.npy" for name in shapes}
    graph = eingraph_build.build(program or program_of(case), shapes, case.dims, origins)
    eingraph_check.check(graph)
    return graph


def printed(case: DrawnCase) -> lang.TypedProgram:
    """The program as it prints, compiled again; itself where it has names that only the compiler can give."""
    program = program_of(case)
    try:
        return compile_text(show(program), "shown.ein")
    except SourceError:  # whatever else it may be, lang_check has proven that it prints
        return program


def rewritten(case: DrawnCase, memory: int | None = None) -> EinGraph:
    graph = rewrite(graph_of(case), memory)
    eingraph_check.check(graph)
    return graph


def cut(case: DrawnCase, tile: int) -> Decomposition:
    """Every label cut into tiles of one size, where it has as much."""
    return cut_into(rewritten(case), lambda bound: max(1, min(bound, tile)))


def cut_into(graph: EinGraph, tile: Callable[[int], int]) -> Decomposition:
    """Each label cut into tiles of what ``tile`` says of its bound."""
    classes = label_classes(graph)
    decomposition = decomp_build.decompose(graph, classes, [tile(bound) for bound in classes.bounds], 1 << 16)
    decomp_check.check(decomposition)
    return decomposition


def tasks(case: DrawnCase, tile: int) -> TaskGraph:
    return tasks_of(cut(case, tile))


def tasks_of(decomposition: Decomposition) -> TaskGraph:
    graph = taskgraph_build.build(decomposition, MACHINE)
    taskgraph_check.check(graph)
    return graph


def placed(case: DrawnCase, tile: int) -> MemGraph:
    """In the least capacity that does."""
    return placed_of(tasks(case, tile))


def placed_of(task_graph: TaskGraph) -> MemGraph:
    capacity = 1
    while True:
        try:
            graph = memgraph_build.build(task_graph, capacity, MACHINE)
            break
        except CapacityError as error:  # names the first task that is too large; a later one may be larger
            assert error.needed > capacity
            capacity = error.needed + 16 * memgraph_build.granule(error.needed)
    memgraph_check.check(graph)
    return graph


# --- kernels, over whole tensors and in halves ------------------------------------------------------------------------


def run_kernels(graph: EinGraph, case: DrawnCase, halved: bool) -> Outputs:
    """The graph with every einsum computed by compiled kernels."""
    values: list[Array] = []
    for node in graph.nodes:
        if isinstance(node, InputNode):
            values.append(case.inputs[node.name])
            continue
        if isinstance(node, ConcatNode):
            values.append(put_together(node, values))
            continue
        operands = [values[o] for o in node.operands]
        out = np.full(node.shape, np.zeros((), node.dtype.numpy))
        if halved:
            run_halved(node.einsum, operands, out)
        else:
            call(node.einsum, "full", (out,), operands, tuple((0, n) for n in node.einsum.bounds), True)
        values.append(out)
    return {name: values[node] for name, node in graph.outputs}


def put_together(node: ConcatNode, values: Sequence[Array]) -> Array:
    """The pieces in their places, the later ones over the earlier."""
    whole = np.zeros(node.shape, node.dtype.numpy)
    for piece in node.pieces:
        for point, value in np.ndenumerate(values[piece.operand]):
            at = list(piece.offsets)
            for axis, step in zip(piece.axes, point, strict=True):
                at[axis] += step
            whole[tuple(at)] = value
    return whole


def run_halved(space: Einsum | Region, operands: Sequence[Array], out: Array) -> None:
    """Each label's range in two, where it may be cut: accumulated into a state, then finalized."""
    whole = space.whole if isinstance(space, Region) else frozenset[int]()
    cuts = [[(0, n)] if p in whole else halves(n) for p, n in enumerate(space.bounds)]
    folds = bool(space.carried) if isinstance(space, Region) else space.aggregation is not None
    rest = tuple((0, n) for n in space.bounds[space.n_out :])
    for outer in product(*cuts[: space.n_out]):
        part = out[index(outer)]
        if not folds:
            call(space, "full", (part,), operands, outer + rest, True)
            continue
        extents = [stop - start for start, stop in outer + rest]
        state = [np.empty(shape, dtype.numpy) for shape, dtype in space.components(extents)]
        for number, inner in enumerate(product(*cuts[space.n_out :])):
            call(space, "accumulate", state, operands, outer + inner, number == 0)
        call(space, "finalize", (part,), state, outer + rest, True)


def halves(bound: int) -> list[tuple[int, int]]:
    """A range in two, where there are two points."""
    middle = bound // 2
    return [(0, middle), (middle, bound)] if middle else [(0, bound)]


def index(box: Sequence[tuple[int, int]]) -> tuple[Any, ...]:
    return (*(slice(*ends) for ends in box), ...)  # a view even where there are no axes


def call(
    space: Einsum | Region, mode: Mode, outs: Sequence[Array], operands: Sequence[Array], box: Box, first: bool
) -> None:
    """A kernel over one box of labels. Finalizing reads a state; others what the box reads of each operand."""
    if mode != "finalize":
        operands = [x[index(space.operand_box(slot, box))] for slot, x in enumerate(operands)]
    kernel = compile_kernel(space, tuple(stop - start for start, stop in box), mode)
    # Full of ones: what is read from the workspace before it is written is a nan or a wild number.
    workspace = np.full(kernel.workspace_nbytes + 64, 0xFF, np.uint8)
    start = -workspace.ctypes.data % 64
    origins = tuple(start for start, _ in box)
    kernel(tuple(outs), tuple(operands), origins, first, workspace[start : start + kernel.workspace_nbytes])


# --- the product ------------------------------------------------------------------------------------------------------


def run_in(case: DrawnCase, arena: int | None, more: float = 0) -> Outputs:
    """A run by the Python API; in an arena that is too small, in the least one that it then names, or so much more."""
    program = einturnip.compile(case.text, dims=case.dims)
    try:
        plan = program.plan(arena=arena, workers=2, data=case.inputs)
    except CapacityError as error:
        plan = program.plan(arena=int(error.needed * (1 + more)), workers=2, data=case.inputs)
    return dict(plan.run())


FLOORS: dict[str, Callable[[DrawnCase], Outputs]] = {
    "lang": lambda case: lang_values.evaluate(program_of(case), case.inputs, case.dims),
    "eingraph": lambda case: eingraph_values.evaluate(graph_of(case), case.inputs),
    "eingraph of the program printed": lambda case: eingraph_values.evaluate(
        graph_of(case, printed(case)), case.inputs
    ),
    "eingraph rewritten": lambda case: eingraph_values.evaluate(rewritten(case), case.inputs),
    "eingraph rewritten for little memory": lambda case: eingraph_values.evaluate(rewritten(case, 256), case.inputs),
    "kernels": lambda case: run_kernels(rewritten(case), case, halved=False),
    "kernels in halves": lambda case: run_kernels(rewritten(case), case, halved=True),
    "decomp": lambda case: decomp_values.evaluate(cut(case, 2), case.inputs),
    "taskgraph": lambda case: taskgraph_values.evaluate(tasks(case, 2), case.inputs),
    "memgraph": lambda case: memgraph_values.evaluate(placed(case, 2), case.inputs),
    "memgraph by points": lambda case: memgraph_values.evaluate(placed(case, 1), case.inputs),
    "run": lambda case: run_in(case, None),
    "run in the least arena": lambda case: run_in(case, 1),
}


# A kind of its own for each feature, so that all of them are met each time; the last has whatever comes.
KINDS: dict[str, Sequence[str]] = {
    "core": (),
    "indices": ("indices", "guards", "gathers"),
    "keys": ("scatters", "gathers", "indices"),
    "pieces": ("slices", "replacements", "concatenation", "reshaping", "indices"),
    "functions": ("functions", "indices"),
    "loops": ("loops", "replacements", "indices"),
    "everything": FEATURES,
}


FEW = settings(max_examples=max(1, settings().max_examples // 4))


def agree(result: Outputs, expected: Mapping[str, Answer]) -> None:
    assert set(result) == set(expected)
    for name, answer in expected.items():
        assert_agrees(result[name], answer)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(data=st.data())
def test_irs_agree_with_the_oracle(kind: str, data: st.DataObject) -> None:
    case = data.draw(programs(features=KINDS[kind]))
    expected = evaluate(case.program, case.inputs, case.dims)
    for floor, run in FLOORS.items():
        note(f"floor: {floor}")
        agree(run(case), expected)


@FEW
@given(case=programs(), memory=st.integers(0, 2048), more=st.floats(0, 2), data=st.data())
def test_any_cut_and_any_budget_give_the_answer(case: DrawnCase, memory: int, more: float, data: st.DataObject) -> None:
    note(case.text)
    expected = evaluate(case.program, case.inputs, case.dims)
    cuts = cut_into(rewritten(case, memory), lambda bound: data.draw(st.integers(1, max(1, bound))))
    agree(memgraph_values.evaluate(placed_of(tasks_of(cuts)), case.inputs), expected)
    agree(run_in(case, 1, more), expected)


@FEW
@given(failing_programs())
def test_irs_refuse_an_index_out_of_range(case: DrawnCase) -> None:
    with pytest.raises(IndexError):
        evaluate(case.program, case.inputs, case.dims)
    for floor, run in FLOORS.items():
        note(f"floor: {floor}")
        with pytest.raises(RunError):
            run(case)
