"""Predictions: counts that must be exact are, and time follows the work that will be done."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.cost.kernel_time import kernel_seconds
from einturnip.cost.kernel_work import simple_work
from einturnip.cost.machine import Machine
from einturnip.cost.machine_defaults import SIDES
from einturnip.cost.transfer_time import load_seconds, runs, store_seconds
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.dtypes import F32
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.select import compile_kernel
from einturnip.memgraph.types import OpKind
from einturnip.planner.planner import PlannedProgram
from einturnip.planner.predict import predicted_seconds, touched_nbytes, used_cores
from einturnip.runtime.host.compilation import compile_all
from einturnip.runtime.scheduler.policies import policy
from einturnip.taskgraph.types import TaskKind

ATTENTION = """import std.nn
input Q : f32[s,d]
input K : f32[s,d]
input V : f32[s,d]
O[s,d] = {}attention(Q[s,d], K[s,d], V[s,d])
output O
"""
PROGRAMS = {
    "product": ("input A : f64[n,n]\nC[i,k] = A[i,j] * A[j,k]\noutput C\n", "32KiB"),
    "map": ("input A : f64[n,n]\nC[i,k] = exp(A[i,k]) + A[k,i]\noutput C\n", "32KiB"),
    "fold": ("input A : f64[n,n]\nC[k] = max[i] A[i,k]\nD[k] = argmax[i] A[k,i]\noutput C, D\n", "32KiB"),
    "chain": (
        "input A : f64[n,n]\nB[i,k] = A[i,j] * A[j,k]\nC[i,k] = sum[j] tanh(B[i,j]) * B[k,j]\noutput C\n",
        "48KiB",
    ),
}
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", PROGRAMS)
def test_predicted_bytes_and_peak_are_exact(name: str, tmp_path: Path) -> None:
    text, arena = PROGRAMS[name]
    np.save(tmp_path / "A.npy", np.random.default_rng(0).integers(-3, 4, (96, 96)).astype(float))
    program = et.compile(text)
    out = {o: str(tmp_path / f"{o}.npy") for o in program.outputs}
    report = program(A=str(tmp_path / "A.npy"), arena=arena, spill=str(tmp_path), out=out).report
    assert report.link_bytes == report.predicted.link_bytes
    # The kernel counts touched memory in pages.
    peak = report.predicted.peak_nbytes["cpu:0"]
    assert report.arena_peak_nbytes <= peak <= max(1.1 * report.arena_peak_nbytes, report.arena_peak_nbytes + PAGE)


def test_what_lies_free_between_large_and_small_values_is_not_touched(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.ones((512, 512), np.float32))
    np.save(tmp_path / "b.npy", np.ones(512, np.float32))
    text = "input A : f32[n,m]\ninput b : f32[m]\nC[i,j] = A[i,j] + b[j]\noutput C\n"
    files = {name: str(tmp_path / f"{name}.npy") for name in "Ab"}
    result = et.compile(text)(data=files, arena="64MiB", out={"C": str(tmp_path / "C.npy")})
    counted = result.report.arena_peak_nbytes
    assert counted <= result.report.predicted.peak_nbytes["cpu:0"] <= 1.1 * counted


def kernel_time(text: str, **sizes: int) -> float:
    tasks = et.compile(text).plan(arena="64MiB", dims=sizes)._job.planned.taskgraph
    return float(tasks.seconds[np.isin(tasks.kind, (TaskKind.KERNEL, TaskKind.ACCUMULATE))].sum())


def test_blocks_that_a_mask_leaves_out_are_not_counted() -> None:
    full, causal = (kernel_time(ATTENTION.format(way), s=4096, d=32) for way in ("", "causal_"))
    assert 0.4 * full < causal < 0.75 * full


def test_a_map_is_priced_by_its_operations_and_points() -> None:
    join = ScalarCall("add", (ScalarCall("exp", (OperandRef(0, F32),), F32), OperandRef(1, F32)), F32)
    einsum = Einsum(("i", "j"), (300, 500), 2, ((0, 1), (1,)), (F32, F32), join, None)
    work = simple_work(compile_kernel(einsum, einsum.bounds, "full"))
    assert {p.name: p.points for p in work.passes} == {"exp.float32": 150_000, "add.float32": 150_000}
    assert 4 * (150_000 + 500) <= sum(p.read for p in work.passes) < 1.05 * 4 * 150_500  # each block reads the row anew
    assert sum(p.written for p in work.passes) == 4 * 150_000
    slower = replace(Machine(), points=tuple((n, 10 * s if n == "exp.float32" else s) for n, s in Machine().points))
    assert kernel_seconds(einsum, einsum.bounds, slower) > 2 * kernel_seconds(einsum, einsum.bounds, Machine())


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(lambda shape: st.tuples(st.just(shape), boxes(shape)))
)
def test_runs_are_those_that_the_file_has(drawn: tuple[list[int], tuple[tuple[int, int], ...]]) -> None:
    shape, box = drawn
    places = sorted(int(np.ravel_multi_index(p, shape)) for p in product(*(range(a, b) for a, b in box)))
    starts = [p for p in places if p - 1 not in places]
    count, nbytes, stride = runs(shape, box, 8)
    assert count * nbytes == 8 * len(places)
    assert count >= len(starts)
    if len(starts) == count > 1:
        assert stride == 8 * min(b - a for a, b in zip(starts, starts[1:], strict=False))


def boxes(shape: list[int]) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    axis = [st.integers(0, n - 1).flatmap(lambda a, n=n: st.tuples(st.just(a), st.integers(a + 1, n))) for n in shape]
    return st.tuples(*axis)


@pytest.mark.parametrize(
    ("dtype", "op", "faster"), [("f32", "sum", True), ("c64", "sum", True), ("c64", "prod", False)]
)
def test_keys_cut_in_two_scatter_faster_where_no_lock_is_held(dtype: str, op: str, faster: bool) -> None:
    """By machine code; NumPy's scatters, of which products of complex numbers are, take turns."""
    made = et.compile(f"dim g\ninput X : {dtype}[n,d]\ninput k : i32[n]\nS[k[n]: g, d] = {op}[n] X[n,d]\noutput S\n")
    graph = made.plan(arena="64MiB", dims={"g": 4000, "n": 50_000, "d": 64})._job.planned.graph
    (node,) = (node for node in graph.nodes if isinstance(node, EinsumNode) and node.einsum.keys)
    whole = list(node.einsum.bounds)
    (keyed,) = (key.label for key in node.einsum.keys)
    half = [n // 2 if p == keyed else n for p, n in enumerate(whole)]
    machine = Machine()
    assert (kernel_seconds(node.einsum, half, machine) < kernel_seconds(node.einsum, whole, machine)) == faster


def test_files_are_copied_faster_into_what_the_cache_holds() -> None:
    """By the bytes of the arena that a plan touches: half of the cache and less, half as much again and more."""
    made = et.compile("input A : f32[m,n]\nB[i,j] = A[i,j] + 1\noutput B\n")
    graph = made.plan(arena="8MiB", dims={"m": 2000, "n": 2000}, workers=1)._job.planned.memgraph
    touched = touched_nbytes(graph)

    def seconds(cache: float) -> float:
        machine = replace(Machine(), workers=1, near_bandwidth=16e9, read_core=1.0, cache_nbytes=cache)
        return predicted_seconds(graph, machine, policy("critical-path"))

    least, between, most = (seconds(touched * times) for times in (2, 1, 2 / 3))
    assert least < between < most
    assert seconds(touched * 4) == least and seconds(1.0) == most


def test_short_runs_cost_more_than_long_ones() -> None:
    shape, whole, strip = (4096, 4096), ((0, 256), (0, 4096)), ((0, 4096), (0, 256))
    assert load_seconds(shape, strip, 4, Machine()) > load_seconds(shape, whole, 4, Machine())
    assert store_seconds(shape, strip, 4, Machine()) > store_seconds(shape, whole, 4, Machine())


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_products_of_measured_sizes_take_what_was_measured(i: int, j: int, k: int) -> None:
    table = dict(Machine().products)["float32"]
    found = Machine().product_seconds("float32", SIDES[i], SIDES[j], SIDES[k])
    assert math.isclose(found, table[(i * len(SIDES) + j) * len(SIDES) + k], rel_tol=1e-9)


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 4000))
def test_products_between_sizes_take_times_between(m: int, n: int, k: int) -> None:
    each = [
        t / (a * b * c)
        for t, (a, b, c) in zip(dict(Machine().products)["float32"], product(SIDES, repeat=3), strict=True)
    ]
    rate = Machine().product_seconds("float32", m, n, k) / (m * n * k)
    assert min(each) * 0.999 <= rate <= max(each) * 1.001


@pytest.mark.machine_code
def test_what_is_left_to_numpy_is_priced_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("EINTURNIP_CALIBRATION", "off")
    code_cache.forget()
    select.forget()
    text = "input X : f32[n,m]\nY[i,j] = gelu(X[i,j])\noutput Y\n"

    def planned() -> PlannedProgram:
        return et.compile(text).plan(X=np.ones((1600, 1600), np.float32))._job.planned

    before = planned()  # compiling takes longer than a run would save
    assert compile_all(before.taskgraph) > 0
    after = planned()
    assert after.prediction.seconds < before.prediction.seconds / 2
    assert after.memgraph.seconds.sum() < before.memgraph.seconds.sum() / 2
    code_cache.forget()
    select.forget()


def test_transfers_ask_for_the_part_of_a_core_that_they_keep_busy(tmp_path: Path) -> None:
    text, arena = PROGRAMS["chain"]
    np.save(tmp_path / "A.npy", np.ones((96, 96)))
    out = {"C": str(tmp_path / "C.npy")}
    plan = et.compile(text).plan(A=str(tmp_path / "A.npy"), arena=arena, spill=str(tmp_path), out=out)
    graph = plan._job.planned.memgraph
    machine = replace(Machine(), read_core=0.25, write_core=0.5, spill_core=0.125)
    asked = used_cores(graph, machine)
    found = {kind: set(asked[graph.kind == kind].tolist()) for kind in OpKind}
    assert found[OpKind.LOAD] == {0.25}
    assert found[OpKind.STORE] == {0.5}
    assert found[OpKind.KERNEL] == {1.0}
    assert found[OpKind.OFFLOAD] == {0.125}
    assert found[OpKind.RELOAD] == {0.125, 1.0}  # of the spill file, and of pages that are in the cache
