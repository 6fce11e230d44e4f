"""Programs whose plans and tiles take memory, as Hypothesis strategies: chains of steps over matrices, and loops.

Each step maps a square matrix to one of the same size, so that any of them may follow another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from einturnip.ir.aggregations import MONOIDS
from einturnip.testing import programs

Array: TypeAlias = np.ndarray[Any, Any]
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

UNARY = ("exp", "tanh", "sigmoid", "relu", "abs", "sin", "floor", "sqrt", "silu", "erf", "softplus", "sign")
BINARY = ("{} + {}", "{} - {}", "{} * {}", "min({}, {})", "max({}, {})", "where({} > {}, 1, 0)")
AGGREGATIONS = [name for name, row in MONOIDS.items() if row.accumulates]
INPUT_KINDS = ("npy", "npz", "safetensors", "h5", "zarr")
OUTPUT_KINDS = ("npy", "npz", "safetensors", "h5", "zarr")
SIDES = (64, 200, 333, 512, 700, 1000)


@dataclass(frozen=True)
class Drawn:
    """A program, its inputs, the format of each, and the format of the outputs."""

    text: str
    inputs: Mapping[str, Array]
    dims: Mapping[str, int]
    kinds: tuple[str, ...]
    output_kind: str

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {a.dtype}{list(a.shape)}" for name, a in self.inputs.items())
        return f"{self.text}# {shapes}; dims {dict(self.dims)}; read {self.kinds}, written {self.output_kind}"


@st.composite
def drawn(draw: Draw) -> Drawn:
    """A chain of steps over matrices and, now and then, a small program of any operators."""
    kinds = tuple(draw(st.lists(st.sampled_from(INPUT_KINDS), min_size=6, max_size=6)))
    output = draw(st.sampled_from(OUTPUT_KINDS))
    if draw(st.integers(0, 5)) == 5:
        case = draw(programs())
        return Drawn(case.text, case.inputs, case.dims, ("npy",) * len(case.inputs), "")
    n = draw(st.sampled_from(SIDES))
    body = "".join(draw(step(x, n)) for x in range(draw(st.integers(1, 3))))
    last = body.count("\n# end") - 1
    text = f"input A : f32[n, n]\ninput k : i64[n]\nX0[i, j] = A[i, j]\n{body}output X{last + 1}\n"
    seed = np.random.default_rng(n)
    inputs = {"A": seed.integers(0, 4, (n, n)).astype(np.float32), "k": seed.integers(0, n, n)}
    return Drawn(text.replace("\n# end", ""), inputs, {}, kinds, output)


@st.composite
def step(draw: Draw, x: int, n: int) -> str:
    """The statements that make matrix ``x + 1`` of matrix ``x``, of ``n`` rows."""
    old, new = f"X{x}", f"X{x + 1}"
    f, op, agg = (draw(st.sampled_from(names)) for names in (UNARY, BINARY, AGGREGATIONS))
    both = op.format(f"{old}[i, j]", "A[j, i]")
    steps = {
        "elementwise": f"{new}[i, j] = {f}({both})",
        "product": f"{new}[i, j] = sum[t] {old}[i, t] * A[t, j] * 0.01",
        "semiring": f"{new}[i, j] = {agg if agg in ('max', 'min') else 'sum'}[t] ({old}[i, t] + A[t, j])",
        "rows": f"{new}[i, j] = {old}[i, j] - {agg}[j] {old}[i, j]",
        "softmax": f"E{x}[i, j] = exp({old}[i, j] - max[j] {old}[i, j])\n{new}[i, j] = E{x}[i, j] / sum[j] E{x}[i, j]",
        "gather": f"{new}[i, j] = {old}[k[i], j] + A[j, k[i]]",
        "scatter": f"{new}[k[i]: n, j] = {agg}[i] {old}[i, j]",
        "reverse": f"{new}[i, j] = {old}[n-1-i, j]",
    }
    if x == 0:
        steps["gradient"] = (
            f"P[i, j] = tanh(sum[t] A[i, t] * A[t, j])\nl = sum[i, j] P[i, j] * A[j, i]\n{new}[i, j] = grad(l, A[i, j])"
        )
    bodies = {
        "stencil": "{0}[i, j] = 0.2 * ({0}[i, j] + ({0}[i-1 ? 0, j]) + ({0}[i+1 ? 0, j]) + ({0}[i, j-1 ? 0]))",
        "diagonal stencil": "{0}[i: n, j: n] = 0.3 * ({0}[i-1 ? 0, j-1 ? 0]) + 0.3 * ({0}[i+1 ? 0, j+1 ? 0])",
        "transposes": "{0}[i, j] = {0}[j, i] * 0.5 + A[i, j]",
        "products": "{0}[i, j] = 0.01 * sum[t] {0}[i, t] * A[t, j]",
        "gathers": "{0}[i, j] = {0}[k[i], j] * 0.5 + A[i, j]",
        "scatters": "{0}[k[i]: n, j] = sum[i] {0}[i, j] * 0.5",
        "state": "v{1}[i] = sum[j] {0}[i, j]\n  {0}[i, j] = {0}[i, j] * 0.5 + v{1}[i] * 0.001",
        "shrinking shifts": "{0}[i, j] = {0}[i, j] + ({0}[i-2^t ? 0, j])",
    }
    kind = draw(st.sampled_from((*steps, *bodies)))
    if kind in steps:
        return f"{steps[kind]}\n# end\n"
    rounds = draw(st.sampled_from((3, 10, 30, 80)))
    if kind == "shrinking shifts":
        rounds = min(rounds, n.bit_length() - 1)
    if kind == "products":
        rounds = min(rounds, 10)
    body = bodies[kind].format(new, x).replace("[t]", "[u]").replace("[i, t]", "[i, u]").replace("[t, j]", "[u, j]")
    return f"{new}[i, j] = {old}[i, j]\nfor t in 0 .. {rounds} {{\n  {body}\n}}\n# end\n"


def stored(folder: Path, name: str, array: Array, kind: str) -> str:
    """Write an array to a file of a kind; the words that name it."""
    path = folder / f"{name}.{kind}"
    match kind:
        case "npy":
            np.save(path, array)
        case "npz":
            np.savez(path, **{name: array})
        case "safetensors":
            from safetensors.numpy import save_file

            save_file({name: array}, str(path))
        case "h5":
            import h5py

            with h5py.File(path, "w") as file:
                file.create_dataset(name, data=array, chunks=True, compression="gzip")
        case "zarr":
            import zarr

            zarr.create_array(str(path), data=array, chunks=tuple(-(-side // 3) for side in array.shape))
            return path.name
    return path.name if kind == "npy" else f"{path.name}::{name}"
