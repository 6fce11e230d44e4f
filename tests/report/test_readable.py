"""Reports of plans and runs agree with the plans and runs."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from einturnip.memgraph.types import Lane, OpKind
from einturnip.report.analyze import _shared
from einturnip.report.budgets import chart, sweep
from einturnip.report.dot import MAX_NODES, emit_dot
from einturnip.report.explain import _links
from einturnip.report.notes import unnumbered
from einturnip.report.statements import statements
from einturnip.report.styled_lines import text_of, truncated
from einturnip.report.summary import links_text, summarise
from einturnip.report.tensor_work import total, work_by_node
from einturnip.report.trace import chrome, drawn, read, write

SOFTMAX = """\
input X : f64[n, n]
E[i,j] = exp(X[i,j])              # a remark
P[i,j] = E[i,j] / sum[j] E[i,j]
T[i,j] = sum[k] P[i,k] * P[k,j]
output T
"""
ATTENTION = """\
input Q : f32[s, d]
input K : f32[t, d]
input V : f32[t, e]
S[i,j] = sum[d] Q[i,d] * K[j,d]
P[i,j] = exp(S[i,j] - max[j] S[i,j])
O[i,e] = (sum[t] P[i,t] * V[t,e]) / sum[t] P[i,t]
output O
"""


def planned(text, arena="64KiB", **dims):
    return et.compile(text).plan(dims=dims, arena=arena)._job


@functools.cache
def squeezed():
    return planned(SOFTMAX, "24KiB", n=80)


def test_work_of_all_nodes_is_the_work_of_the_plan():
    graph = squeezed().planned.memgraph
    work = work_by_node(graph)
    whole = total(work)
    assert sum(whole.ops.values()) == len(graph)
    assert whole.ops[OpKind.OFFLOAD] and whole.ops[OpKind.RELOAD]
    assert whole.moved(Lane.IN) == graph.nbytes_by_link()["disk->cpu:0"]
    assert whole.moved(Lane.OUT) == graph.nbytes_by_link()["cpu:0->disk"]
    assert sum(whole.seconds.values()) == pytest.approx(graph.seconds.sum())
    assert whole.flops == graph.taskgraph.flops.sum()
    assert all(w.peak_nbytes <= graph.peak_nbytes for w in work)


def test_what_is_held_is_counted_as_by_walking_the_plan():
    graph = squeezed().planned.memgraph
    begun, stays, live, highest = {}, {}, {}, {}
    for op in graph:
        for access in (*op.reads, *op.writes):
            if access.tier == 0 and access.value >= 0:
                if access.value not in begun or op.kind in (OpKind.LOAD, OpKind.RELOAD):
                    begun[access.value] = op.id
                stays[access.value, begun[access.value]] = op.id, access.nbytes
    events = []
    for (value, first), (last, nbytes) in stays.items():
        node = graph.taskgraph.get_value(graph.unversioned(value)).node
        events += [(first, 1, node, nbytes), (last, 2, node, -nbytes)]
    for _, _, node, nbytes in sorted(events):
        live[node] = live.get(node, 0) + nbytes
        highest[node] = max(highest.get(node, 0), live[node])
    assert highest == {i: w.peak_nbytes for i, w in enumerate(work_by_node(graph)) if w.peak_nbytes}


def test_a_plan_speaks_in_the_users_statements():
    text = et.compile(SOFTMAX).plan(dims={"n": 80}, arena="24KiB").explain()
    assert "   2  E[i,j] = exp(X[i,j])  " in text and "remark" not in text
    spilled = re.search(r"spilled: (.*) to disk and (.*) back, since", text)
    assert spilled and "output T" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_is_fused_names_the_line_that_computes_it():
    text = et.compile(ATTENTION).plan(dims={"s": 16384, "t": 16384, "d": 64, "e": 64}, arena="64MiB").explain()
    flat = " ".join(text.split())
    assert "in one pass with line 6: S never stored" in flat
    assert "3 V : f32[16384, 64] 4.00 MiB," in flat and "fused: one pass over" in flat and "S (1.00 GiB)" in flat


def test_a_statement_computed_where_it_is_used_says_so():
    job = planned("input x : f64[n]\ny[i] = x[i] + 1\nz[i] = y[i] * 2\noutput z\n", n=10)
    (first, second) = statements(job.planned.graph)
    assert (first.line, first.nodes, first.within) == (2, (), 3) and second.nodes


def test_other_budgets_are_marked_and_the_least_is_one_that_fits():
    job = et.compile(SOFTMAX).plan(dims={"n": 24}, arena="24KiB")._job
    found = sweep(job.replanned, job.planned, float("inf"))
    budgets = [point.budget for point in found.points]
    assert budgets == sorted(budgets) and [p.budget for p in found.points if p.stated] == [24 * 1024]
    assert found.smallest is not None and found.smallest < 24 * 1024
    assert job.replanned(found.smallest)
    lines = text_of(chart(found, 80)).splitlines()
    assert any(line.startswith("> 24.0 KiB") for line in lines) and max(map(len, lines)) <= 80


@pytest.mark.parametrize("floor", ["einsum", "decomposition", "taskgraph", "memgraph"])
def test_a_drawing_has_every_node_and_edge_or_every_group(floor):
    small, large = planned(ATTENTION, "1MiB", s=8, t=8, d=2, e=2).planned, squeezed().planned
    lines = list(emit_dot(small, floor))
    graphs = {"taskgraph": small.taskgraph, "memgraph": small.memgraph}
    nodes = [line for line in lines if re.match(r"  n\d+ \[", line)]
    assert len(nodes) == (len(graphs[floor]) if floor in graphs else len(small.graph.nodes))
    if floor == "memgraph":
        assert sum(" -> " in line for line in lines) == len(small.memgraph.after)
        assert len(large.memgraph) > MAX_NODES
        grouped = list(emit_dot(large, floor))
        counted = [int(m[1].replace(",", "")) for m in re.finditer(r'n\d+ \[label="([\d,]+) x', "\n".join(grouped))]
        assert sum(counted) == len(large.memgraph)
        edges = [int(m[1].replace(",", "")) for m in re.finditer(r'-> n\d+ \[label="([\d,]+)"', "\n".join(grouped))]
        assert sum(edges) == len(large.memgraph.after)


def test_edges_between_tasks_lead_from_makers_to_readers():
    small = planned(SOFTMAX, "1MiB", n=8).planned
    tasks = small.taskgraph
    makers = {}
    for task in tasks:
        if task.kind.word != "store":
            makers.setdefault(task.value, []).append(task.id)
    expected = {(m, task.id) for task in tasks for value in task.reads for m in makers[value]}
    found = {tuple(map(int, m)) for m in re.findall(r"n(\d+) -> n(\d+);", "\n".join(emit_dot(small, "taskgraph")))}
    assert found == expected


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("recorded")
    plan = et.compile(SOFTMAX).plan(X=np.zeros((80, 80)), arena="24KiB")
    result = plan.run()
    runs = plan._job.traced_runs(result.report)
    write(tmp_path / "run.trace", runs, result.report.wall_seconds, "softmax.ein")
    return plan._job.planned, result, tmp_path / "run.trace"


def test_an_analysis_tells_the_time_of_every_op_once(run):
    planned, result, _ = run
    analysis, timeline = result.analyze(), result.report.timeline
    kinds = planned.memgraph.kind
    kernels = [k for k in OpKind if k.lane == Lane.COMPUTE]
    spent = (timeline.end - timeline.begin)[np.isin(kinds, kernels)].sum() / planned.machine.workers
    by_row = [m for row in analysis.rows for m in row.measures]
    for whole in analysis.total:
        parts = [m for m in by_row if m.lane == whole.lane]
        assert sum(m.ops for m in parts) == whole.ops and sum(m.nbytes for m in parts) == whole.nbytes
        assert sum(m.actual for m in parts) == pytest.approx(whole.actual)
    assert analysis.total[0].actual == pytest.approx(spent)
    assert max(map(len, analysis.text().splitlines())) <= 80
    assert json.loads(json.dumps(analysis.to_json()))["statements"][1]["line"] == 2


def test_transfers_at_one_time_share_their_lane():
    begin, end = np.array([0.0, 1.0, 5.0, 5.0]), np.array([2.0, 3.0, 6.0, 6.0])
    assert _shared(begin, end).tolist() == [1.5, 1.5, 0.5, 0.5]
    assert _shared(begin[:0], end[:0]).tolist() == []


def test_a_recorded_run_is_drawn_and_turned_into_events(run):
    planned, result, path = run
    recorded = read(path)
    assert len(recorded.kind) == len(planned.memgraph)
    lines = text_of(drawn(recorded, 80)).splitlines()
    assert lines[0].startswith("softmax.ein: ") and max(map(len, lines)) <= 80
    assert "b  line 2    E[i,j] = exp(X[i,j])" in lines
    events = json.loads("".join(chrome(recorded)))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [e["args"]["op"] for e in spans] == list(range(len(planned.memgraph)))
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in spans)
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert all(("kernels" in lanes[e["tid"]]) == (e["cat"] in ("kernel", "move", "aggregate")) for e in spans)


@pytest.mark.parametrize(
    "damage", [lambda t: t[:100], lambda t: t.replace("/1", "/9"), lambda t: t.replace("[0", "[9", 1)]
)
def test_what_is_no_recorded_run_is_refused(run, damage, tmp_path):
    path = tmp_path / "run.trace"
    path.write_text(damage(run[2].read_text()))
    with pytest.raises(et.BindError, match="is no recorded run"):
        read(path)


def test_names_and_texts_are_kept_short():
    assert [unnumbered(n) for n in ("F.sum8.sum", "P.max2", "rope.2.Y", "X2", "f.x")] == [
        "F.sum.sum",
        "P.max",
        "rope.Y",
        "X2",
        "f.x",
    ]
    assert truncated("a  b\n c", 10) == "a b c" and truncated("abcdefgh", 6) == "abc..."


def test_where_the_time_went_is_all_of_it(tmp_path: Path) -> None:
    """Computing, waiting, reading, writing and the rest add up to the whole time of the workers."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones((512, 512), np.float32))
    program = et.compile("input X: f32[i,j]\nY[j,i] = sqrt(X[i,j])\noutput Y")
    report = program(X=et.open(path), out={"Y": str(tmp_path / "y.npy")}, arena=1 << 18).report
    assert 0 < report.carried <= report.lanes["in"] + report.lanes["out"]
    told = next(line for line in summarise(report) if line.startswith("busy"))
    shares = [int(n) for n in re.findall(r"(\d+)%", told)]
    assert "reading and writing" in told and 90 <= sum(shares) <= 110


@pytest.mark.parametrize(
    ("nbytes", "bound", "told"),
    [
        (2048, 1024, "in 2.00 KiB (2.00 x the lower bound of 1.00 KiB)"),
        (9216, 1024, "in 9.00 KiB (9.00 x the lower bound of 1.00 KiB)"),
        (10240, 1024, "in 10.0 KiB (any plan moves at least 1.00 KiB)"),
        (1024, 0, "in 1.00 KiB"),
        (0, 1024, "nothing"),
    ],
)
def test_bytes_are_compared_with_their_bound_where_it_covers_them(nbytes, bound, told):
    assert links_text({"in": nbytes}, {"in": bound}) == told


def test_a_plan_gives_no_ratio_to_a_bound_that_does_not_cover_what_it_moves() -> None:
    found = dict(_links({"in": 5000 << 10, "out": 0}, {"in": 2 << 10, "out": 0}))
    assert found == {"reads": "4.88 MiB (any plan moves at least 2.00 KiB)", "writes": "0 B"}
    found = dict(_links({"in": 3 << 10, "out": 1 << 10}, {"in": 2 << 10, "out": 1 << 10}))
    assert found == {"reads": "3.00 KiB (1.50 x the lower bound of 2.00 KiB)", "writes": "1.00 KiB"}
