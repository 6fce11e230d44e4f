"""The division of work among sites: bytes as EinDecomp counts them, balance, and the answer of one site."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import einturnip as et
from einturnip.cli.main import cli
from einturnip.cost.machine import Machine
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.report.sites import site_traffic, sites_json
from einturnip.taskgraph.build import build
from einturnip.taskgraph.multi_device import tasks_of_calls
from einturnip.taskgraph.types import TaskKind
from einturnip.tiling import site_tiles
from einturnip.tiling.build import lay_out
from einturnip.tiling.device_assignment import assign_calls
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.equivalence import equivalence_classes
from einturnip.tiling.label_classes import label_classes
from einturnip.tiling.movement import moved
from einturnip.tiling.site_tiles import align
from einturnip.tiling.sites import Sites, alternating

PROGRAMS = {
    "product": (
        "input A : f64[n, k], B : f64[k, m]\nC[i, j] = A[i, k] * B[k, j]\noutput C\n",
        dict(n=1200, k=1200, m=1200),
    ),
    "long sum": (
        "input A : f64[n, k], B : f64[k, m]\nC[i, j] = A[i, k] * B[k, j]\noutput C\n",
        dict(n=60, k=90000, m=40),
    ),
    "chain": (
        "input A : f64[n, k], B : f64[k, m], E : f64[m, l]\nD[i, j] = A[i, k] * B[k, j]\nC[i, h] = D[i, j] * E[j, h]\n"
        "output C\n",
        dict(n=600, k=800, m=700, l=500),
    ),
    "ladder": (
        "input W : f64[v, v, v, v], T : f64[o, o, v, v]\nR[i,j,a,b] = sum[c,d] W[a,b,c,d] * T[i,j,c,d]\noutput R\n",
        dict(o=12, v=30),
    ),
    "mttkrp": (
        "input X : f64[i, j, k], B : f64[j, r], C : f64[k, r]\nM[i, r] = sum[j, k] X[i, j, k] * B[j, r] * C[k, r]\n"
        "output M\n",
        dict(i=120, j=110, k=130, r=16),
    ),
    "attention": (
        "input Q : f64[h, s, d], K : f64[h, t, d], V : f64[h, t, d]\nS[h, s, t] = sum[d] Q[h, s, d] * K[h, t, d]\n"
        "P[h, s, t] = exp(S[h, s, t] - max[t] S[h, s, t])\n"
        "O[h, s, d] = (sum[t] P[h, s, t] * V[h, t, d]) / (sum[t] P[h, s, t])\noutput O\n",
        dict(h=8, s=256, t=256, d=32),
    ),
}


def planned(text: str, dims: dict[str, int], sites: int, arena: int, **options: Any) -> PlannedProgram:
    device = "sim:" + ",".join(map(str, range(1, sites + 1))) if sites > 1 else "cpu"
    plan = et.compile(text, dims=dims).plan(device=device, arena=arena, workers=1, **options)
    found: PlannedProgram = plan._job.planned
    return found


def arrays(text: str, dims: dict[str, int]) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(7)
    nodes = planned(text, dims, 1, 4 << 20).graph.nodes
    return {node.name: rng.standard_normal(node.shape) for node in nodes if isinstance(node, InputNode)}


@pytest.mark.parametrize("sites", [2, 3, 4, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_are_those_that_eindecomp_counts(name: str, sites: int) -> None:
    text, dims = PROGRAMS[name]
    plan = planned(text, dims, sites, 4 << 20)
    traffic = site_traffic(plan.memgraph)
    assert traffic.arriving.sum() <= 1.05 * moved(eindecomp(plan.graph, sites)).total
    if name in ("product", "long sum", "ladder"):
        assert traffic.arriving.max() <= 1.1 * traffic.arriving.mean()
        assert traffic.kernel_seconds.max() <= 1.1 * traffic.kernel_seconds.mean()


CAUSAL = """
input Q : f32[h, n, d], K : f32[h, n, d], V : f32[h, n, d]
S[a,i,j] = where(j <= i, sum[c] Q[a,i,c] * K[a,j,c], -inf)
P[a,i,j] = exp(S[a,i,j] - max[j] S[a,i,j])
O[a,i,c] = sum[j] P[a,i,j] * V[a,j,c] / sum[j] P[a,i,j]
output O
"""


@pytest.mark.parametrize("sites, rates", [(3, ()), (12, ()), (64, ()), (5, (1.0, 1.0, 1.0, 1.0, 5.0))])
def test_calls_that_a_mask_empties_are_balanced_by_more_calls(sites: int, rates: tuple[float, ...]) -> None:
    graph = planned(CAUSAL, dict(h=4, n=4096, d=64), 1, 64 << 20).graph
    work = np.array(assign_calls(eindecomp(graph, sites), sites).flops)
    assert work.max() > 1.2 * work.mean()  # one call for each site
    found = Sites(graph, sites, rates)._assigned(rates or [1.0] * sites)
    work = np.array(found.flops) / np.array(rates or 1.0)
    assert round(work.max() / work.mean(), 2) <= 1.05


@pytest.mark.parametrize("sites", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5))])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answer_is_that_of_one_site(name: str, sites: int) -> None:
    text, dims = PROGRAMS[name]
    dims = {k: max(2, n // 10) for k, n in dims.items()}
    program = et.compile(text, dims=dims)
    data = arrays(text, dims)
    (expected,) = dict(program(**data)).values()
    for arena in ("64KiB", "16KiB", "1MiB"):
        (found,) = dict(
            program.plan(data=data, device="sim:" + ",".join("123456"[:sites]), arena=arena, workers=1).run()
        ).values()
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_sites_compute_what_they_read_if_its_operands_are_smaller() -> None:
    """A cast of halves, which one device stores and several would send to each other."""
    text = (
        "input g : f16[d], X : f32[s, d]\nw[d] = f32(g[d])\nm[s] = max[d] X[s, d]\n"
        "Z[s, d] = (X[s, d] - m[s]) * w[d]\noutput Z\n"
    )
    plans = (planned(text, dict(s=256, d=64), sites, 1 << 20).memgraph.taskgraph for sites in (1, 8))
    one, eight = ({n.name for n in tasks.decomposition.graph.nodes} for tasks in plans)
    assert one - eight == {"w"}


def test_received_parts_are_copied_by_one_task_if_they_fit() -> None:
    text = (
        "input A : f64[n, n]\n@tile(i = 6 parts, j = 1 parts)\nD[i, j] = exp(A[i, j])\n"
        "@tile(i = 1 parts, j = 6 parts)\nE[i, j] = D[i, j] - max[k] D[k, j]\noutput E\n"
    )
    graph = planned(text, dict(n=48), 1, 4 << 20).graph
    tasks = tasks_of_calls(Sites(graph, 6), Machine())
    moves = np.flatnonzero(tasks.kind == TaskKind.MOVE)
    assert np.diff(tasks.read_ptr)[moves].max() > 1
    assert len(np.unique(tasks.value[moves])) == len(moves)


def test_reproducible_results_do_not_depend_on_the_number_of_sites() -> None:
    text, dims = PROGRAMS["long sum"]
    dims = dict(n=60, k=50000, m=40)
    program = et.compile(text, dims=dims)
    data = arrays(text, dims)
    digests = set[str]()
    for device in ("cpu", "sim:1,2", "sim:1,2,3", "sim:1,2,3,4"):
        plan = program.plan(data=data, device=device, arena="4MiB", workers=1, reproducible=True)
        digests.add(hashlib.sha256(dict(plan.run())["C"].tobytes()).hexdigest())
    assert len(digests) == 1


def test_the_sites_that_combine_do_not_depend_on_plans_made_before() -> None:
    graph = planned(*PROGRAMS["long sum"], 1, 4 << 20).graph
    sites = Sites(graph, 3)
    grouped = equivalence_classes(graph, align(label_classes(graph), sites))
    halves = [max(1, n // 2) for n in grouped.classes.coarsest]  # four output tiles for three sites
    decomposition = lay_out(grouped, halves, 4 << 20)
    first, again = (build(decomposition, Machine(), sites=sites) for _ in range(2))
    np.testing.assert_array_equal(first.value, again.value)


def test_a_tile_size_divides_the_parts_of_all_sites() -> None:
    graph = planned(*PROGRAMS["chain"], 1, 4 << 20).graph
    sites = Sites(graph, 6)
    classes = align(label_classes(graph), sites)
    for i, calls in enumerate(sites.calls):
        for c, tile, bound in zip(classes.of[i], calls.tiles, calls.bounds, strict=True):
            if tile < bound and c in classes.calls:
                own = classes.coarsest[c]
                assert abs(round(tile / own) * own - tile) <= 0.02 * tile + 1
                assert all(classes.dividing(c, n) <= n for n in range(1, own + 1))


@pytest.mark.slow
def test_64_sites_read_the_weights_of_llama_few_times() -> None:
    program = Path(__file__).parents[2] / "docs" / "examples" / "models" / "llama.ein"
    dims = [x for size in ("h=32", "f=11008", "v=32000", "s=2048", "L=32") for x in ("--dim", size)]
    arguments = ["plan", str(program), *dims, "--sites", "64", "--arena", "8GiB", "--no-budgets", "--format", "json"]
    found = json.loads(CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout)
    once = sum(each["read_bytes"] for each in found["site_inputs"])
    assert once <= sum(site["first_read_bytes"] for site in found["sites"]) <= 4 * once


def test_a_statement_of_many_operands_is_divided() -> None:
    inputs = "".join(f"input X{i} : f64[n]\n" for i in range(80))
    terms = " + ".join(f"exp(X{i}[a])" for i in range(80))
    plan = planned(inputs + f"Y[a] = {terms}\noutput Y\n", {"n": 400}, 2, 1 << 20)
    assert site_traffic(plan.memgraph).arriving.tolist() == [80 * 200 * 8] * 2


def test_the_traffic_of_a_plan_is_counted_op_by_op() -> None:
    plan = planned(*PROGRAMS["long sum"], 4, 4 << 20)
    graph, traffic = plan.memgraph, site_traffic(plan.memgraph)
    device, between = graph.op_devices(), graph.between_devices()
    moves = [op for op in graph if between[op.id]]
    for op in moves:
        assert op.reads[0].offset // graph.device_nbytes != device[op.id]
    assert traffic.between.sum() == sum(op.reads[0].nbytes for op in moves) == 3 * 60 * 40 * 8
    assert not traffic.between.diagonal().any()
    loads = [op.reads[0].nbytes for op in graph if op.kind == OpKind.LOAD]
    assert traffic.first_reads.sum() == sum(loads)
    found = sites_json(graph)
    assert (
        sum(found["site_links"].values()) == sum(site["bytes_in"] for site in found["sites"]) == traffic.between.sum()
    )


@pytest.mark.parametrize("group", [2, 3, 5, 8, 13, 64])
def test_the_trees_of_a_group_give_each_site_as_much_to_receive(group: int) -> None:
    assert sorted(alternating(group)) == list(range(group))
    graph = planned("input A : f64[k]\ns = sum[k] A[k]\noutput s\n", dict(k=4096), 1, 1 << 20).graph
    node = len(graph.nodes) - 1
    trees = Sites(graph, group).combining_trees()
    received = np.zeros(group, int)
    for tiles in range(1, 2 * group + 1):
        tree = trees.next_tree(node, (), tuple(range(group)))
        sent, into = map(list, zip(*tree, strict=True))
        assert sorted([*sent, into[-1]]) == list(range(group))  # each state but the total's is sent once
        assert all(site not in sent[: k + 1] for k, site in enumerate(into))  # a state is complete when it is sent
        np.add.at(received, into, 1)
        if tiles % 2 == 0:
            assert received.max() <= received.mean() + math.log2(group) + 1
    assert received.max() == received.min()


def test_a_sum_over_many_sites_has_few_tiles() -> None:
    """A total for each of 256 sites needs a tile for each; trees combine a few large tiles as evenly."""
    text, dims = PROGRAMS["mttkrp"]
    plan = planned(text, dims | dict(i=1024, j=192, k=192), 256, 8 << 20)
    traffic = site_traffic(plan.memgraph)
    assert traffic.arriving.sum() <= 1.05 * moved(eindecomp(plan.graph, 256)).total
    assert traffic.arriving.max() <= 1.1 * traffic.arriving.mean()
    assert len(plan.memgraph) <= 150 * 256


def test_statements_that_take_little_time_do_not_make_tiles_small() -> None:
    """EinDecomp cuts small statements of CP-ALS by other labels; tiles that divide all calls would be 1.8 million."""
    text = (
        "input X : f64[i, j, k], B : f64[j, r], C : f64[k, r]\n"
        "M[i,r] = X[i,j,k] * B[j,r] * C[k,r]\n"
        "G[r,s] = (sum[j] B[j,r] * B[j,s]) * (sum[k] C[k,r] * C[k,s])\n"
        "N[j,r] = X[i,j,k] * M[i,r] * C[k,r]\n"
        "L[k,r] = X[i,j,k] * M[i,r] * N[j,r]\n"
        "output M, N, L, G\n"
    )
    plan = planned(text, dict(i=600, j=500, k=700, r=32), 64, 256 << 20)
    traffic = site_traffic(plan.memgraph)
    assert traffic.arriving.sum() <= 1.05 * moved(eindecomp(plan.graph, 64)).total
    assert traffic.arriving.max() <= 1.1 * traffic.arriving.mean()
    assert traffic.kernel_seconds.max() <= 1.05 * traffic.kernel_seconds.mean()


TURNED = (
    "input X : f64[n, m], A : f64[m, k], B : f64[k, m]\n"
    "Y[i,c] = tanh(sum[a] X[i,a] * A[a,c])\nZ[i,a] = tanh(sum[c] Y[i,c] * B[c,a])\ns[a] = sum[i] Z[i,a]\n"
    "W[i,a] = Z[i,a] - s[a]\noutput W\n"
)


def divided(monkeypatch: pytest.MonkeyPatch, sites: int, arena: int, dims: dict[str, int]) -> PlannedProgram:
    """A plan with tile sizes of its own for each statement, however few kernel calls one size would make."""
    monkeypatch.setattr(site_tiles, "FEW_ALIGNED_CALLS", 0)
    monkeypatch.setattr(site_tiles, "MAX_ALIGNED_TIMES", 0.0)
    return planned(TURNED, dims, sites, arena)


@pytest.mark.parametrize("sites", [3, 4, 6, 16])
def test_statements_with_tiles_of_their_own_send_what_eindecomp_counts(
    sites: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site receives the part of a tile that it reads, not the tile."""
    plan = divided(monkeypatch, sites, 16 << 20, dict(n=480, m=480, k=960))
    assert len({calls.tiles for calls in Sites(plan.graph, sites).calls if calls.bounds == (480, 480)}) > 1
    traffic = site_traffic(plan.memgraph)
    assert traffic.arriving.sum() <= 1.05 * moved(eindecomp(plan.graph, sites)).total
    assert traffic.kernel_seconds.max() <= 1.05 * traffic.kernel_seconds.mean()


@pytest.mark.parametrize("sites", [2, 3, 5])
@pytest.mark.parametrize("arena", ["32KiB", "128KiB", "4MiB"])
def test_statements_with_tiles_of_their_own_give_the_answer_of_one_site(
    sites: int, arena: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_tiles, "FEW_ALIGNED_CALLS", 0)
    monkeypatch.setattr(site_tiles, "MAX_ALIGNED_TIMES", 0.0)
    dims = dict(n=48, m=40, k=56)
    program = et.compile(TURNED, dims=dims)
    data = arrays(TURNED, dims)
    expected = dict(program(**data))["W"]
    plan = program.plan(data=data, device="sim:" + ",".join("123456"[:sites]), arena=arena, workers=1)
    np.testing.assert_allclose(dict(plan.run())["W"], expected, rtol=1e-10, atol=1e-10)
