"""Runs of all sites in one process on real data: the answers and the bits of one site."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.planner import canonical
from einturnip.taskgraph.types import TaskKind
from einturnip.testing import programs
from einturnip.testing.strategies import FEATURES
from tests.devices.test_language import plans
from tests.drawn import examples
from tests.sites.test_output_chunks import writers

DEVICES = [f"sim:{','.join(map(str, range(1, sites + 1)))}" for sites in (1, 2, 3, 4)]
SUMS = {
    "sum": ("input X : f64[n]\ns = sum[n] X[n]\noutput s\n", dict(n=400_000)),
    "product": (
        "input A : f32[i, k], B : f32[k, j]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n",
        dict(i=96, j=80, k=20_000),
    ),
    "softmax": (
        "input X : f32[i, j], V : f32[j, d]\nm[i] = max[j] X[i,j]\nP[i,j] = exp(X[i,j] - m[i])\n"
        "Y[i,d] = (sum[j] P[i,j] * V[j,d]) / sum[j] P[i,j]\nL[i] = logsumexp[j] X[i,j]\nb = argmax[i,j] X[i,j]\n"
        "output Y, L, b\n",
        dict(i=60, j=20_000, d=8),
    ),
}

INPUTS = {
    "sum": {"X": ("f8", "n")},
    "product": {"A": ("f4", "ik"), "B": ("f4", "kj")},
    "softmax": {"X": ("f4", "ij"), "V": ("f4", "jd")},
}


def reproducible(text: str, dims: dict[str, int], inputs: dict[str, Any], device: str, arena: int | None) -> et.Plan:
    with mock.patch.multiple(canonical, CANONICAL_MIN_NBYTES=1 << 17, CANONICAL_MAX_NBYTES=1 << 18):
        program = et.compile(text, dims=dims)
        return program.plan(arena=arena, workers=1, data=inputs, device=device, reproducible=True)


def digest(plan: et.Plan) -> str:
    result = dict(plan.run())
    return sha256(b"".join(np.asarray(result[name]).tobytes() for name in sorted(result))).hexdigest()


@pytest.mark.parametrize("name", SUMS)
def test_divided_sums_have_the_same_bits_on_any_number_of_sites(name: str) -> None:
    text, dims = SUMS[name]
    rng = np.random.default_rng(7)
    inputs = {
        tensor: rng.standard_normal([dims[label] for label in labels]).astype(dtype)
        for tensor, (dtype, labels) in INPUTS[name].items()
    }
    found = set()
    for device in DEVICES:
        plan = reproducible(text, dims, inputs, device, None)
        found.add(digest(plan))
        tasks = plan._job.planned.taskgraph
        if tasks.devices > 1:
            adds = tasks.kind == TaskKind.ACCUMULATE
            work = np.bincount(tasks.device[tasks.value[adds]], tasks.seconds[adds], tasks.devices)
            assert work.min() >= 0.5 * work.mean(), device
            assert (tasks.kind == TaskKind.COMBINE).any()
            assert plan._job.planned.memgraph.between_devices().any()
    assert len(found) == 1


@settings(max_examples=examples(10), suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_drawn_programs_have_the_same_bits_on_any_number_of_sites(data: st.DataObject) -> None:
    case = data.draw(programs(features=FEATURES))
    alone = reproducible(case.text, case.dims, case.inputs, DEVICES[0], None)
    expected = digest(alone)
    sites = data.draw(st.sampled_from(DEVICES[1:]))
    for plan in plans(lambda arena: reproducible(case.text, case.dims, case.inputs, sites, arena)):
        assert digest(plan) == expected


@pytest.mark.parametrize("device", DEVICES[1:])
def test_sites_of_one_process_write_parts_of_the_same_chunks(tmp_path: Path, device: str) -> None:
    rng = np.random.default_rng(5)
    data = {"A": rng.integers(-4, 5, (301, 16)).astype(float), "B": rng.integers(-4, 5, (16, 277)).astype(float)}
    program = et.compile("input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n")
    plan = program.plan(arena="32KiB", workers=2, data=data, device=device, out={"C": str(tmp_path / "C.zarr")})
    plan.run()
    stored = zarr.open_array(tmp_path / "C.zarr", path="C", mode="r")
    who = writers(plan._job.planned.memgraph, 0, stored.chunks)
    # Threads write ranges of bytes that do not overlap; they neither read nor lock the rest of the chunk.
    assert max(map(len, who.values())) > 1
    np.testing.assert_array_equal(np.asarray(stored[...]), data["A"] @ data["B"])


def test_an_error_on_one_site_names_its_statement_and_ends_all_sites() -> None:
    text = "input A : f64[n, m], k : i64[n]\nB[i,j] = exp(A[i,j])\nC[i,j] = B[k[i], j] * 2\noutput C\n"
    program = et.compile(text, dims=dict(n=64, m=64))
    inputs = {"A": np.ones((64, 64)), "k": np.full(64, 64)}
    plan = program.plan(arena=1 << 15, workers=1, data=inputs, device="sim:1,2,3")
    with pytest.raises(et.RunError, match="line 3"):
        plan.run()
