"""Traces of runs: stored in a file, drawn as text, or exported for a browser's trace viewer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from einturnip.core.errors import BindError
from einturnip.core.units import format_seconds
from einturnip.memgraph.types import Lane, OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.report.analyze import LANES
from einturnip.report.styled_lines import Line, truncated
from einturnip.report.tensor_work import nodes_of_ops
from einturnip.runtime.scheduler.report import RunReport

SCHEMA = "einturnip.trace/1"
_COLUMNS = ("kind", "node", "thread", "begin", "end", "nbytes")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Shares of a cell's time above which it is shown as busy, or as partly busy.
_BUSY, _PARTLY = 0.5, 0.02

Column = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded run. ``tensors``: name, line and statement of each node; columns by op. Units: seconds."""

    program: str
    seconds: float
    tensors: tuple[tuple[str, int, str], ...]
    kind: Column
    node: Column
    thread: Column
    begin: Column
    end: Column
    nbytes: Column


@dataclass(frozen=True, slots=True)
class TracedRun:
    """One run of a plan, as part of a program's run. ``begin``: seconds since that began."""

    planned: PlannedProgram
    report: RunReport
    begin: float


def write(path: Path, runs: Sequence[TracedRun], seconds: float, program: str) -> None:
    """Record the run of a program in a file: one JSON object, its columns by op.

    ``runs``: of its plans, in order. ``seconds``: of the whole run.
    """
    tensors, first = list[list[object]](), dict[int, int]()
    for planned in (run.planned for run in runs):
        if id(planned) not in first:
            first[id(planned)] = len(tensors)
            nodes = planned.graph.nodes
            tensors += [[node.name, node.line, planned.graph.statement(node.line)] for node in nodes]
    head = {
        "schema": SCHEMA,
        "program": program,
        "seconds": seconds,
        "kinds": [kind.name.lower() for kind in OpKind],
        "tensors": tensors,
    }
    fixed = {id(run.planned): _columns_of(run.planned, first[id(run.planned)]) for run in runs}
    with path.open("w") as file:
        file.write(json.dumps(head)[:-1])
        for name in _COLUMNS:
            column = [_column(name, run, fixed[id(run.planned)]) for run in runs]
            file.write(f',\n"{name}": {json.dumps(np.concatenate(column).tolist())}')
        file.write("}\n")


def _columns_of(planned: PlannedProgram, first: int) -> dict[str, Column]:
    """The columns that are the same in every run of a plan. ``first``: the number of its first tensor."""
    graph = planned.memgraph
    return {"kind": graph.kind, "node": first + nodes_of_ops(graph), "nbytes": graph.moved_nbytes()}


def _column(name: str, run: TracedRun, fixed: Mapping[str, Column]) -> Column:
    timeline = run.report.timeline
    assert timeline is not None
    match name:
        case "thread":
            return timeline.thread
        case "begin":
            return np.round(run.begin + timeline.begin, 7)
        case "end":
            return np.round(run.begin + timeline.end, 7)
    return fixed[name]


def read(path: Path) -> RecordedRun:
    """Read a recorded run.

    Raises:
        BindError: the file contains none.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError
        tensors = tuple((str(name), int(line), str(text)) for name, line, text in data["tensors"])
        types = (np.uint8, np.int64, np.int64, np.float64, np.float64, np.int64)
        columns = [np.array(data[name], dtype) for name, dtype in zip(_COLUMNS, types, strict=True)]
        is_valid = all(c.shape == (len(columns[0]),) for c in columns) and np.all(columns[3] <= columns[4])
        if not is_valid or np.any(columns[0] >= len(OpKind)) or np.any((columns[1] < 0) | (columns[1] >= len(tensors))):
            raise ValueError
        return RecordedRun(str(data["program"]), float(data["seconds"]), tensors, *columns)
    except FileNotFoundError:
        raise BindError(f"there is no recorded run {path}") from None
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise BindError(f"{path} is no recorded run. help: einturnip run PROG.ein --trace {path.name}") from None


def drawn(run: RecordedRun, width: int) -> list[Line]:
    """Draw each thread of each lane as a row over time, with a letter for each statement."""
    name_width = max(map(len, LANES.values())) + 4
    cells = max(10, width - name_width)
    letters = _letters(run)
    head = f"{run.program}: {len(run.kind):,} steps in {format_seconds(run.seconds)}, {_cell(run, cells)} a column"
    lines: list[Line] = [((head, "head"),), (), ((f"{'':{name_width}}{_axis(run, cells)}", "note"),)]
    for lane, thread, ops in _threads(run):
        row = _row(run, ops, letters, cells)
        lines.append(((f"{LANES[lane]} {thread:<{name_width - len(LANES[lane]) - 1}}", ""), (row, "bar")))
    lines += [(), *_legend(run, letters, width)]
    return lines


def _cell(run: RecordedRun, cells: int) -> str:
    return format_seconds(run.seconds / cells)


def _axis(run: RecordedRun, cells: int) -> str:
    middle, last = format_seconds(run.seconds / 2), format_seconds(run.seconds)
    half = cells // 2
    return f"{'0':<{half}}{middle:<{cells - half - len(last)}}{last}"


def _threads(run: RecordedRun) -> Iterator[tuple[Lane, int, Column]]:
    """Yield every thread of every lane with its ops in the order of their begin."""
    lanes = np.array([kind.lane for kind in OpKind])[run.kind]
    for lane in Lane:
        for thread in np.unique(run.thread[lanes == lane]).tolist():
            ops = np.flatnonzero((lanes == lane) & (run.thread == thread))
            yield lane, thread, ops[np.argsort(run.begin[ops], kind="stable")]


def _lines(run: RecordedRun) -> Column:
    """The source line of each op's statement."""
    return np.array([line for _, line, _ in run.tensors], dtype=np.int64)[run.node]


def _letters(run: RecordedRun) -> dict[int, str]:
    """A letter for each line with work, in source order.

    '*' for those with the least work, if there are many.
    """
    lines = _lines(run)
    distinct, index = np.unique(lines, return_inverse=True)
    seconds = np.bincount(index, run.end - run.begin, len(distinct))
    largest = set(distinct[np.argsort(-seconds, kind="stable")][: len(_LETTERS)].tolist())
    shown = iter(_LETTERS)
    return {line: next(shown) if line in largest else "*" for line in distinct.tolist()}


def _row(run: RecordedRun, ops: Column, letters: dict[int, str], cells: int) -> str:
    """One row: each cell has the letter with the most time, '-' if it mostly waits, blank if idle."""
    edges = np.linspace(0.0, max(run.seconds, 1e-9), cells + 1)
    lines = _lines(run)[ops]
    names = np.unique(lines).tolist()
    busy = np.stack([_seconds_before(run, ops[lines == line], edges) for line in names])
    share = np.diff(busy, axis=1) / (edges[1] - edges[0])
    largest, busy_share = share.argmax(axis=0).tolist(), share.sum(axis=0).tolist()
    return "".join(
        letters[names[m]] if w >= _BUSY else "-" if w >= _PARTLY else " "
        for m, w in zip(largest, busy_share, strict=True)
    ).rstrip()


def _seconds_before(run: RecordedRun, ops: Column, edges: Column) -> Column:
    """Cumulative seconds of consecutive ops at each edge."""
    begin, end = run.begin[ops], run.end[ops]
    finished = np.concatenate([[0.0], np.cumsum(end - begin)])
    started = np.searchsorted(begin, edges)
    excess = np.where(started > 0, np.maximum(end[started - 1] - edges, 0.0), 0.0)
    return np.asarray(finished[started] - excess)


def _legend(run: RecordedRun, letters: dict[int, str], width: int) -> Iterator[Line]:
    texts = {line: text.partition("#")[0].rstrip() for _, line, text in run.tensors}
    for line, letter in letters.items():
        if letter != "*":
            yield (letter, "bar"), (f"  line {line:<4} ", ""), (truncated(texts[line], width - 13), "name")
    if "*" in letters.values():
        yield (("*", "bar"), ("  the other lines", ""))


def chrome(run: RecordedRun) -> Iterator[str]:
    """Yield events in the format of browsers' trace viewers (Chrome, Perfetto), in pieces."""
    rows = {(lane, thread): row for row, (lane, thread, _) in enumerate(_threads(run))}
    yield '{"displayTimeUnit": "ms", "traceEvents": ['
    for (lane, thread), row in rows.items():
        name = {"name": f"{LANES[lane]} {thread}"}
        yield json.dumps({"ph": "M", "pid": 0, "tid": row, "name": "thread_name", "args": name}) + ",\n"
        yield json.dumps({"ph": "M", "pid": 0, "tid": row, "name": "thread_sort_index", "args": {"sort_index": row}})
        yield ",\n"
    columns = (run.kind, run.node, run.thread, run.begin, run.end, run.nbytes)
    for op, (k, node, thread, begin, end, nbytes) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        kind, (name, line, text) = OpKind(k), run.tensors[node]
        arguments = {"op": op, "line": line, "statement": text} | ({"bytes": nbytes} if nbytes else {})
        event = {"ph": "X", "pid": 0, "tid": rows[kind.lane, thread], "ts": begin * 1e6, "dur": (end - begin) * 1e6}
        yield json.dumps(event | {"name": name, "cat": kind.name.lower(), "args": arguments}) + ",\n"
    yield json.dumps({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": run.program}}) + "]}"
