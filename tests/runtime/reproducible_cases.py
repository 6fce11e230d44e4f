"""Programs whose bits are compared, with numbers of which every sum is rounded, and how they are run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest

from einturnip import compiler
from einturnip.compiler import Options, bind, execute, make_plan
from einturnip.core.errors import CapacityError
from einturnip.eingraph.types import EinGraph
from einturnip.lang import compile_text
from einturnip.lang.program import InputDef
from einturnip.memgraph.types import MemGraph
from einturnip.planner import canonical
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.host.event_loop import OpEnded, drive
from einturnip.runtime.scheduler.state_machine import SchedulerState
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.storage.arrays import array_sink, array_source

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
    "trained": """
input X : f32[n, d]
input y : i64[n]
input W : f32[d, h]
input U : f32[h, c]
import std.nn
H[n,h] = gelu(sum[d] X[n,d] * W[d,h])
Z[n,c] = sum[h] H[n,h] * U[h,c]
loss = mean[n] (logsumexp[c] Z[n,c] - Z[n, y[n]])
gW[d,h] = grad(loss, W[d,h])
gU[h,c] = grad(loss, U[h,c])
V[d,h] = W[d,h] - 0.1 * gW[d,h]
output loss, V, gU
""",
    "attended": """
input Q : f32[s, d]
input K : f32[t, d]
input V : f32[t, e]
import std.nn
O[s,e] = causal_attention(Q[s,d], K[t,d], V[t,e])
loss = sum[s,e] O[s,e]^2
gQ[s,d] = grad(loss, Q[s,d])
gK[t,d] = grad(loss, K[t,d])
gV[t,e] = grad(loss, V[t,e])
output loss, gQ, gK, gV
""",
    "blur": """
input X : f32[a, b]
input F : f32[p, q]
dim h = a - p + 1, w = b - q + 1
Y[i: h, j: w] = sum[p, q] X[i+p, j+q] * F[p,q]
s = sum[i, j] sigmoid(Y[i,j])
G[a,b] = grad(s, X[a,b])
output Y, s, G
""",
    "waves": """
input A : c64[i, k]
input B : c64[k, j]
C[i,j] = sum[k] A[i,k] * conj(B[k,j])
n = sum[i, j] abs(C[i,j])
P[i,j] = exp(C[i,j] / 100) * A[i,j]
output C, n, P
""",
    "moments": """
input X : f64[i, j]
m[j] = mean[i] X[i,j]
v[j] = mean[i] (X[i,j] - m[j])^2
Z[i,j] = (X[i,j] - m[j]) / sqrt(v[j] + 1e-5)
p[i] = prod[j] (1 + Z[i,j] / 1000)
b[i] = argmax[j] Z[i,j]
s = sum[i,j] Z[i,j]^3
e[i] = max[j] sin(Z[i,j])
output p, b, s, e, v
""",
    "powers": """
input A : f64[n, m]
input x : f64[m]
s = 0.0
for t in 0 .. 3 {
  y[n] = sum[m] A[n,m] * x[m]
  x[m] = sum[n] A[n,m] * y[n]
  s = sum[m] x[m]^2
  x[m] = x[m] / sqrt(s)
}
output x, s
""",
    "paths": """
input A : f32[i, k]
input B : f32[k, j]
S[i,j] = min[k] (A[i,k] + B[k,j])
L[i,j] = logsumexp[k] (A[i,k] * B[k,j])
output S, L
""",
    "looked_up": """
input E : f32[v, d]
input ids : i64[s]
input W : f32[d, v]
X[s,d] = E[ids[s], d] * 1.5
L[s,v] = sum[d] X[s,d] * W[d,v]
P[s,v] = L[s,v] - logsumexp[v] L[s,v]
Y[ids[s]: v, d] = mean[s] tanh(X[s,d])
output P, Y
""",
    "gram": """
input X : f32[n, d]
K[i,j] = exp(-(sum[d] (X[i,d] - X[j,d])^2) / 50)
r[i] = sum[j] K[i,j] * (sum[d] X[j,d])
S[b: 2, d, e] = sum[i] X[i,d] * X[i,e] * (b + 1)
output r, S
""",
}
SIZES: dict[str, dict[str, int]] = {
    "chain": {"i": 500, "k": 700, "j": 650, "l": 400},
    "attention": {"s": 1200, "t": 1200, "d": 64, "e": 96},
    "softmax": {"i": 900, "j": 1100},
    "layernorm": {"s": 1000, "d": 800, "e": 300},
    "scatter": {"i": 6000, "d": 70},
    "trained": {"n": 700, "d": 600, "h": 500, "c": 30},
    "attended": {"s": 700, "t": 700, "d": 64, "e": 48},
    "blur": {"a": 700, "b": 650, "p": 5, "q": 3},
    "waves": {"i": 400, "k": 420, "j": 420},
    "moments": {"i": 700, "j": 650},
    "powers": {"n": 800, "m": 700},
    "paths": {"i": 450, "k": 300, "j": 470},
    "looked_up": {"v": 1500, "d": 150, "s": 900},
    "gram": {"n": 900, "d": 40},
}
# Keys are less than this number.
KEYS = {"scatter": 40, "trained": 30, "looked_up": 1500}


@cache
def data(name: str) -> tuple[EinGraph, dict[str, Array]]:
    """A program with its sizes, and its inputs."""
    program = compile_text(PROGRAMS[name], f"{name}.ein")
    rng = np.random.default_rng(7)
    arrays = {tensor.name: _drawn(rng, name, tensor) for tensor in program.inputs}
    return bind(program, sources(arrays), {}), arrays


def _drawn(rng: np.random.Generator, name: str, tensor: InputDef) -> Array:
    line = next(line for line in PROGRAMS[name].splitlines() if line.startswith(f"input {tensor.name} :"))
    shape = [SIZES[name][axis.strip()] for axis in line.partition("[")[2].rstrip("]").split(",")]
    dtype = tensor.dtype.numpy
    if dtype.kind == "i":
        return rng.integers(0, KEYS[name], shape)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def sources(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {name: array_source(array, name) for name, array in arrays.items()}


class Drawn:
    """An engine in which of the ops under way any may end next. Ops run as they end, one at a time."""

    def __init__(self, execute: Callable[[int], None], pick: Pick) -> None:
        self.execute, self.pick = execute, pick
        self.under_way: list[int] = []

    def start(self, op: int) -> None:
        self.under_way.append(op)

    def wait(self, timeout: float) -> OpEnded:
        op = self.under_way.pop(self.pick(len(self.under_way)))
        self.execute(op)
        return OpEnded(op, 0, 0.0, 0.0, None)

    def now(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


@contextmanager
def scheduled(pick: Pick) -> Iterator[None]:
    """Runs go by drawn schedules."""

    def run_ops(
        graph: MemGraph, state: SchedulerState, execute: Callable[[int], None], describe: Any, threads: Any, *_: Any
    ) -> RunTrace:
        state.rank = [random.Random(pick(1 << 20)).random() for _ in range(len(graph))]  # type: ignore[assignment]
        return drive(state, Drawn(execute, pick), describe, 1)

    with mock.patch.object(compiler, "run_ops", run_ops):
        yield


@cache
def planned(name: str, **options: Any) -> PlannedProgram:
    graph, arrays = data(name)
    with mock.patch.object(canonical, "CANONICAL_MIN_NBYTES", 1 << 20):  # so that programs this small have many tiles
        return make_plan(graph, sources(arrays), {}, Options(**options))


@cache
def budgets(name: str) -> tuple[int, ...]:
    """From the least arena in which the program runs reproducibly to one that holds it all."""
    with pytest.raises(CapacityError) as refused:
        planned(name, arena=1 << 10, reproducible=True)
    least = refused.value.needed
    whole = sum(a.nbytes for a in data(name)[1].values()) * 4
    return least, int(1.1 * least), int(1.5 * least), 3 * least, max(4 * least, whole)


def bits(name: str, pick: Pick | None, given: Mapping[str, Any] | None = None, **options: Any) -> tuple[bytes, ...]:
    """The outputs' bytes. ``given``: sources in place of arrays of our own."""
    options = {"reproducible": True} | options
    plan = planned(name, **options)
    read = sources(data(name)[1]) if given is None else dict(given)
    found = {n: np.empty(plan.graph.nodes[i].shape, plan.graph.nodes[i].dtype.numpy) for n, i in plan.graph.outputs}
    nodes = {n: plan.graph.nodes[i] for n, i in plan.graph.outputs}
    sinks = {n: array_sink(array, n, nodes[n].shape, nodes[n].dtype) for n, array in found.items()}
    if pick is None:
        execute(plan, read, sinks, Options(**options))
    else:
        with scheduled(pick):
            execute(plan, read, sinks, Options(**options))
    return tuple(array.tobytes() for array in found.values())


@cache
def reference(name: str) -> tuple[bytes, ...]:
    return bits(name, None, arena=budgets(name)[-1], workers=2)
