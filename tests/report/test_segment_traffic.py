"""The traffic of equal layers that are planned once, counted element by element."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from einturnip.api import segmented_plan
from einturnip.api.segmented_plan import PlannedSegments, plan_segments
from einturnip.cli.main import cli
from einturnip.compiler import Options, bind
from einturnip.core.errors import BindError
from einturnip.devices.kind import of_sites
from einturnip.lang import compile_text
from einturnip.memgraph.types import MemGraph, OpKind
from einturnip.report.sites import site_traffic
from einturnip.storage.generated import AbsentSource
from einturnip.tiling.graph_segments import segments

LAYERS = """input X0 : f32[s, d], M : f32[d], W : f32[L, d, f], V : f32[L, f, d]
X[s,d] = 2 * X0[s,d]
G[d] = exp(M[d])
for l in 0 .. L {
  H[s,f] = relu(sum[d] X[s,d] * W[l,d,f])
  X[s,d] = X[s,d] * G[d] + sum[f] H[s,f] * V[l,f,d]
}
Y[s] = sum[d] X[s,d] * G[d]
output Y
"""
DIMS = dict(L=6, s=48, d=24, f=64)


def planned(sites: int) -> PlannedSegments:
    graph = bind(compile_text(LAYERS, "p.ein"), {}, DIMS)
    options = Options(device=of_sites(sites), arena=1 << 20)
    missing = lambda node: AbsentSource(node.name, node.shape, node.dtype)  # noqa: E731
    return plan_segments(segments(graph), {}, missing, {}, options)


@pytest.mark.parametrize("sites", [2, 3, 4, 8])
def test_traffic_is_that_of_every_layer_and_element(sites: int) -> None:
    plan, owner = planned(sites), dict[str, np.ndarray]()
    between, reads, seconds = np.zeros((sites, sites), int), np.zeros(sites, int), np.zeros(sites)
    for segment, made in plan.plans:
        own = site_traffic(made.memgraph)
        for _ in range(segment.times):
            between, seconds, reads = between + own.between, seconds + own.kernel_seconds, reads + own.first_reads
            for name, box, site in boxes(made.memgraph, OpKind.LOAD):
                if name in segment.values:
                    held = owner[name][box].reshape(-1)
                    reads[site] -= 4 * held.size
                    for source in held[held != site].tolist():
                        between[source, site] += 4
            shapes = {name: made.graph.nodes[i].shape for name, i in made.graph.outputs}
            owner |= {name: np.full(shape, -1) for name, shape in shapes.items()}
            for name, box, site in boxes(made.memgraph, OpKind.STORE):
                owner[name][box] = site
            assert all((owner[name] >= 0).all() for name in shapes)
    traffic = plan.traffic
    np.testing.assert_array_equal(traffic.between, between)
    np.testing.assert_array_equal(traffic.first_reads, reads)
    np.testing.assert_allclose(traffic.kernel_seconds, seconds)
    assert between.any() and (traffic.receive_seconds > 0).any()


def boxes(graph: MemGraph, kind: OpKind) -> list[tuple[str, tuple[slice, ...], int]]:
    """Return the tensor, the box and the site of each load or store."""
    tasks, program, here, found = graph.taskgraph, graph.taskgraph.decomposition.graph, graph.op_devices(), []
    for op in graph:
        if op.kind == kind:
            task = tasks[op.task]
            name = program.outputs[task.node][0] if kind == OpKind.STORE else program.nodes[task.node].name
            box = tuple(slice(lo, hi) for lo, hi in tasks.get_value(task.value).box)
            found.append((name, box, int(here[op.id])))
    return found


def test_prediction_leaves_out_what_stays_on_sites() -> None:
    plan = planned(4)
    assert plan.prediction.link_bytes == {
        "disk->cpu:0": int(plan.traffic.first_reads.sum()),
        "cpu:0->disk": 48 * 4,
    }


def test_inputs_are_those_of_all_layers() -> None:
    """The first site that reads a part of an input reads it once; weights are read by each layer in another place."""
    found = {x.name: x for x in planned(4).traffic.inputs}
    s, d, f, layers = (DIMS[name] for name in "sdfL")
    assert {name: x.read for name, x in found.items()} == {
        "X0": 4 * s * d,
        "M": 4 * d,
        "W": 4 * layers * d * f,
        "V": 4 * layers * f * d,
    }
    assert any(x.read_again + x.sent for x in found.values())


def test_equal_layers_are_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented_plan, "SEGMENTED_CALLS", 1)
    (tmp_path / "p.ein").write_text(LAYERS)
    dims = [x for name, n in DIMS.items() for x in ("--dim", f"{name}={n}")]
    arguments = ["plan", str(tmp_path / "p.ein"), *dims, "--arena", "1MiB", "--sites", "4"]
    shown = json.loads(CliRunner().invoke(cli, [*arguments, "--format", "json"]).stdout)
    times = [stage["iterations"] for stage in shown["stages"]]
    assert max(times) >= 4 and len(times) == 3
    assert shown["predicted"]["seconds"] == pytest.approx(
        sum(n * stage["plan"]["predicted"]["seconds"] for n, stage in zip(times, shown["stages"], strict=True))
    )
    assert sum(shown["site_links"].values()) == sum(site["bytes_in"] for site in shown["sites"])
    text = " ".join(CliRunner().invoke(cli, arguments).output.split())
    assert f"one of {max(times)} equal layers" in text and "between 4 sites" in text
    alone = json.loads(CliRunner().invoke(cli, [*arguments[:-1], "1", "--format", "json"]).stdout)
    assert "stages" not in alone


def test_a_site_without_work_in_all_segments_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented_plan, "SEGMENTED_CALLS", 1)
    (tmp_path / "p.ein").write_text(LAYERS)
    dims = [x for name in DIMS for x in ("--dim", f"{name}={6 if name == 'L' else 1}")]
    found = CliRunner().invoke(cli, ["plan", str(tmp_path / "p.ein"), *dims, "--arena", "1MiB", "--sites", "64"])
    assert isinstance(found.exception, BindError)
    expected = r"\d+ of 64 sites \(such as cpu:\d+\) compute nothing. help: --sites \d+"
    assert re.fullmatch(expected, str(found.exception))
