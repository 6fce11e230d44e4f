"""A reproducible run: the same bits under any schedule, in any memory, by any number of workers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip import pipeline
from einturnip.core.errors import CapacityError
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.lang import compile_text
from einturnip.memgraph.types import MemGraph
from einturnip.pipeline import Options, Planned, bind, execute, make_plan
from einturnip.runtime.loop import Ended, Trace, drive
from einturnip.runtime.state import State
from einturnip.stores.arrays import array_sink, array_source
from einturnip.taskgraph.types import TaskKind

Array = np.ndarray[Any, np.dtype[Any]]
Pick = Callable[[int], int]

PROGRAMS = {
    "chain": """
input A : f32[i, k]
input B : f32[k, j]
input C : f32[j, l]
D[i,l] = sum[j] (sum[k] A[i,k] * B[k,j]) * C[j,l]
output D
""",
    "attention": """
input Q : f32[s, d]
input K : f32[t, d]
input V : f32[t, e]
import std.nn
O[s,e] = causal_attention(Q[s,d], K[t,d], V[t,e])
output O
""",
    "softmax": """
input X : f32[i, j]
input m : f64[j]
P[i,j] = exp(X[i,j] - max[j] X[i,j])
Y[i,j] = P[i,j] / sum[j] P[i,j]
L[i] = logsumexp[j] X[i,j] * 2
M[j] = mean[i] X[i,j] * m[j]
t = sum[i, j] tanh(X[i,j]) * m[j]
output Y, L, M, t
""",
    "layernorm": """
input X : f32[s, d]
input W : f32[d, e]
input g : f32[d]
input b : f32[d]
import std.nn
H[s,e] = sum[d] gelu(layernorm(X[s,d], g[d], b[d])) * W[d,e]
output H
""",
    "scatter": """
input X : f64[i, d]
input k : i64[i]
Y[k[i]: 40, d] = sum[i] X[i,d] * X[i,d]
Z[d] = sum[i] X[i,d] / (1 + X[i,d]^2)
output Y, Z
""",
}
SIZES: dict[str, dict[str, int]] = {
    "chain": {"i": 500, "k": 700, "j": 650, "l": 400},
    "attention": {"s": 1200, "t": 1200, "d": 64, "e": 96},
    "softmax": {"i": 900, "j": 1100},
    "layernorm": {"s": 1000, "d": 800, "e": 300},
    "scatter": {"i": 6000, "d": 70},
}


@cache
def data(name: str) -> tuple[EinGraph, dict[str, Array]]:
    """A program with its sizes, and numbers of which every sum is rounded."""
    program = compile_text(PROGRAMS[name], f"{name}.ein")
    rng = np.random.default_rng(7)
    arrays: dict[str, Array] = {}
    for tensor in program.inputs:
        shape = [SIZES[name][str(n)] for n in _axes(PROGRAMS[name], tensor.name)]
        if tensor.name == "k" and name == "scatter":
            arrays["k"] = rng.integers(0, 40, shape)
        else:
            arrays[tensor.name] = rng.standard_normal(shape).astype(
                np.float64 if ": f64" in _line(name, tensor.name) else np.float32
            )
    return bind(program, sources(arrays), {}), arrays


def _line(name: str, tensor: str) -> str:
    return next(line for line in PROGRAMS[name].splitlines() if line.startswith(f"input {tensor} :"))


def _axes(text: str, tensor: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"input {tensor} :"))
    return [axis.strip() for axis in line.partition("[")[2].rstrip("]").split(",")]


def sources(arrays: dict[str, Array]) -> dict[str, Any]:
    return {name: array_source(array, name) for name, array in arrays.items()}


class Drawn:
    """An engine in which of the ops under way any may end next. Ops run as they end, one at a time."""

    def __init__(self, execute: Callable[[int], None], pick: Pick) -> None:
        self.execute, self.pick = execute, pick
        self.under_way: list[int] = []

    def start(self, op: int) -> None:
        self.under_way.append(op)

    def wait(self, timeout: float) -> Ended:
        op = self.under_way.pop(self.pick(len(self.under_way)))
        self.execute(op)
        return Ended(op, 0, 0.0, 0.0, None)

    def now(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


@contextmanager
def scheduled(pick: Pick) -> Iterator[None]:
    """Runs go by drawn schedules."""

    def run_ops(
        graph: MemGraph, state: State, execute: Callable[[int], None], describe: Any, threads: Any, *_: Any
    ) -> Trace:
        state.rank = [random.Random(pick(1 << 20)).random() for _ in range(len(graph))]  # type: ignore[assignment]
        return drive(state, Drawn(execute, pick), describe, 1)

    with mock.patch.object(pipeline, "run_ops", run_ops):
        yield


@cache
def planned(name: str, **options: Any) -> Planned:
    graph, arrays = data(name)
    return make_plan(graph, sources(arrays), {}, Options(**options))


@cache
def budgets(name: str) -> tuple[int, ...]:
    """From the least arena in which the program runs reproducibly to one that holds it all."""
    with pytest.raises(CapacityError) as refused:
        planned(name, arena=1 << 10, reproducible=True)
    least = refused.value.needed
    whole = sum(a.nbytes for a in data(name)[1].values()) * 4
    return least, int(1.1 * least), int(1.5 * least), 3 * least, max(4 * least, whole)


def bits(name: str, pick: Pick | None, **options: Any) -> tuple[bytes, ...]:
    """The outputs' bytes."""
    options = {"reproducible": True} | options
    plan = planned(name, **options)
    _, arrays = data(name)
    found = {n: np.empty(plan.graph.nodes[i].shape, plan.graph.nodes[i].dtype.numpy) for n, i in plan.graph.outputs}
    nodes = {n: plan.graph.nodes[i] for n, i in plan.graph.outputs}
    sinks = {n: array_sink(array, n, nodes[n].shape, nodes[n].dtype) for n, array in found.items()}
    if pick is None:
        execute(plan, sources(arrays), sinks, Options(**options))
    else:
        with scheduled(pick):
            execute(plan, sources(arrays), sinks, Options(**options))
    return tuple(array.tobytes() for array in found.values())


@cache
def reference(name: str) -> tuple[bytes, ...]:
    return bits(name, None, arena=budgets(name)[-1], workers=2)


names = st.sampled_from(sorted(PROGRAMS))


@settings(max_examples=25)
@given(names, st.integers(0, 4), st.sampled_from([1, 2, 4]), st.data())
def test_the_bits_do_not_hang_on_schedule_memory_or_workers(name: str, n: int, workers: int, d: st.DataObject) -> None:
    seed = d.draw(st.integers(0, 2**32))
    generator = random.Random(seed)
    assert bits(name, generator.randrange, arena=budgets(name)[n], workers=workers) == reference(name)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_threads_give_the_same_bits(name: str, workers: int) -> None:
    assert bits(name, None, arena=budgets(name)[0], workers=workers) == reference(name)


def test_without_it_bits_hang_on_the_memory() -> None:
    """The check above can fail: the same numbers summed in other tiles are rounded otherwise."""
    ordinary = partial(bits, "chain", None, reproducible=False, workers=2)
    assert ordinary(arena=budgets("chain")[0] // 3) != ordinary(arena=budgets("chain")[-1])


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_tiles_are_those_of_the_program(name: str) -> None:
    made = [planned(name, arena=b, workers=w, reproducible=True) for b in budgets(name) for w in (1, 3)]
    assert len({tuple(p.tiles for p in plan.decomposition.partitionings) for plan in made}) == 1
    assert any(
        k in (TaskKind.TOUCH, TaskKind.KERNEL) and n > 1
        for k, n in zip(*np.unique(made[0].taskgraph.kind, return_counts=True), strict=True)
    )
    assert len({sum(isinstance(n, EinsumNode) for n in plan.graph.nodes) for plan in made}) == 1


def test_a_memory_too_small_is_refused_with_the_least_that_would_do() -> None:
    least = budgets("chain")[0]
    planned("chain", arena=least, reproducible=True)
    with pytest.raises(CapacityError, match="the least that would do"):
        planned("chain", arena=least // 2, reproducible=True)
    planned("chain", arena=least // 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_fifty_schedules_five_budgets_three_numbers_of_workers(name: str) -> None:
    for budget in budgets(name):
        for workers in (1, 2, 4):
            for seed in range(50):
                pick = random.Random(seed).randrange
                assert bits(name, pick, arena=budget, workers=workers) == reference(name), (budget, workers, seed)
