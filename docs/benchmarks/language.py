"""Six programs of the language, each in an arena of a quarter of its data, compared with NumPy.

    python docs/benchmarks/language.py FOLDER [--only NAME ...] [--share 4]

Data are the inputs and outputs. Each run is a process of its own, observed through /proc. Prints Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gemm import watch

Arrays = dict[str, np.ndarray]


def neighbours_data(rng: np.random.Generator) -> Arrays:
    """Points of small integers, so that every distance is exact and there are ties."""
    return {n: rng.integers(0, 16, (size, 784)).astype("f4") for n, size in (("X", 60_000), ("Q", 10_000))}


def neighbours(a: Arrays) -> Arrays:
    """Distances in blocks of queries, and a stable sort of each row."""
    x, q = a["X"], a["Q"]
    norms = (x * x).sum(1)
    near = np.empty((len(q), 5), np.int64)
    for at in range(0, len(q), 500):
        block = q[at : at + 500]
        d = (block * block).sum(1)[:, None] + norms - 2 * (block @ x.T)
        some = np.argpartition(d, 20, axis=1)[:, :20]
        worst = np.take_along_axis(d, some, 1).max(1)
        for row in range(len(block)):
            candidates = np.flatnonzero(d[row] <= worst[row])
            near[at + row] = candidates[np.argsort(d[row][candidates], kind="stable")[:5]]
    return {"near": near}


def pagerank_data(rng: np.random.Generator) -> Arrays:
    """A million edges among 100,000 nodes, some of them without outgoing edges."""
    return {
        "src": (90_000 * rng.random(10**6) ** 2).astype("i4"),
        "dst": (100_000 * rng.random(10**6) ** 3).astype("i4"),
    }


def pagerank(a: Arrays) -> Arrays:
    """Power iteration with bincount."""
    n, src, dst = 100_000, a["src"], a["dst"]
    degree = np.bincount(src, minlength=n)
    x = np.full(n, 1 / n)
    for _ in range(20):
        got = np.bincount(dst, x[src] / degree[src], minlength=n)
        x = 0.15 / n + 0.85 * (got + x[degree == 0].sum() / n)
    return {"x": x}


def paths_data(rng: np.random.Generator) -> Arrays:
    """2,000 nodes with six outgoing edges each, of integer lengths."""
    w = np.full((2000, 2000), np.inf, "f4")
    for _ in range(6):
        w[np.arange(2000), rng.integers(0, 2000, 2000)] = rng.integers(1, 100, 2000)
    return {"W": w}


def paths(a: Arrays) -> Arrays:
    """Dijkstra from every node."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    w = np.where(np.isfinite(a["W"]), a["W"], 0).astype("f8")
    return {"D": dijkstra(csr_array(w)).astype("f4")}


def viterbi_data(rng: np.random.Generator) -> Arrays:
    """500 states, 2,000 steps."""
    return {name: np.log(rng.random(shape)) for name, shape in (("P", 500), ("T", (500, 500)), ("E", (2000, 500)))}


def viterbi(a: Arrays) -> Arrays:
    """The textbook's two loops."""
    v = a["P"] + a["E"][0]
    back = np.zeros((2000, 500), np.int64)
    for k in range(1, 2000):
        step = v[:, None] + a["T"]
        back[k] = step.argmax(0)
        v = step.max(0) + a["E"][k]
    path = [int(v.argmax())]
    for k in range(1999, 0, -1):
        path.append(int(back[k, path[-1]]))
    return {"path": np.array(path[::-1]), "score": np.array(v.max())}


def convnet_data(rng: np.random.Generator) -> Arrays:
    """16 colour images of 224 x 224; 32 and then 64 channels."""
    shapes = {"X": (16, 3, 224, 224), "U": (32, 3, 3, 3), "V": (64, 32, 3, 3)}
    return {name: rng.standard_normal(shape, dtype="f4") for name, shape in shapes.items()}


def convnet(a: Arrays) -> Arrays:
    """Nine shifted products for each convolution."""

    def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        out = np.zeros((x.shape[0], w.shape[0], *x.shape[2:]), "f8")
        for p in range(3):
            for q in range(3):
                window = padded[:, :, p : p + x.shape[2], q : q + x.shape[3]]
                out += np.einsum("bcij,oc->boij", window, w[:, :, p, q], optimize=True)
        return out

    y = np.maximum(conv(a["X"], a["U"]), 0).astype("f4")
    b, o, h, w = y.shape
    return {"Z": conv(y.reshape(b, o, h // 2, 2, w // 2, 2).max((3, 5)), a["V"])}


def ccsd_data(rng: np.random.Generator) -> Arrays:
    """20 occupied and 80 virtual orbitals."""
    o, v = 20, 80
    shapes = {"t": (o, v), "T2": (o, o, v, v), "K": (o, o, v, v), "L": (v, v, v, v), "D": (o, o, v, v)}
    return {name: rng.standard_normal(shape) / 10 for name, shape in shapes.items()}


def ccsd(a: Arrays) -> Arrays:
    """np.einsum with an optimal path, everything in memory."""

    def e(subscripts: str, *operands: np.ndarray) -> np.ndarray:
        return np.einsum(subscripts, *operands, optimize="optimal")

    t, t2, k = a["t"], a["T2"], a["K"]
    ladder = e("abcd,ijcd->ijab", a["L"], t2) / 2
    ring = e("klcd,ikac,jlbd->ijab", k, t2, t2)
    six = e("klcd,ic,jd,ka,lb->ijab", k, t, t, t, t) * a["D"]
    return {"R": (ladder + ring) * a["D"] + six}


CASES: dict[str, tuple[Callable[[np.random.Generator], Arrays], Callable[[Arrays], Arrays], list[str], float]] = {
    "neighbours": (neighbours_data, neighbours, [], 0.0),
    "pagerank": (pagerank_data, pagerank, ["--dim", "n=100000"], 1e-12),
    "paths": (paths_data, paths, [], 0.0),
    "viterbi": (viterbi_data, viterbi, [], 1e-12),
    "convnet": (convnet_data, convnet, [], 1e-5),
    "ccsd": (ccsd_data, ccsd, [], 1e-12),
}


def measure(name: str, folder: Path, share: int) -> str:
    """Create the data, run NumPy and einturnip, compare; return one row of the table."""
    make, reference, options, tolerance = CASES[name]
    arrays = make(np.random.default_rng(7))
    folder.mkdir(parents=True, exist_ok=True)
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array)
    begin = time.perf_counter()
    expected = reference(arrays)
    numpy_seconds = time.perf_counter() - begin
    data = sum(array.nbytes for array in (*arrays.values(), *expected.values()))
    program = Path(__file__).parent / "language" / f"{name}.ein"
    shutil.copy(program, folder / program.name)
    command = [str(Path(sys.executable).parent / "einturnip"), "run", program.name, "--quiet", *options]
    arena = max(data // share, 1)
    seen = watch([*command, "--arena", str(arena)], folder)
    worst = 0.0
    for key, wanted in expected.items():
        found = np.load(folder / f"{key}.npy")
        if np.issubdtype(wanted.dtype, np.integer) or tolerance == 0:
            assert np.array_equal(found, wanted), f"{name}: {key} is wrong"
        else:
            off = float(np.abs(found - wanted).max() / np.abs(wanted).max())
            assert off <= tolerance, f"{name}: {key} is off by {off}"
            worst = max(worst, off)
    return (
        f"| {name} | {data / 2**20:.1f} | {arena / 2**20:.1f} | {seen.seconds:.1f} | {numpy_seconds:.1f} "
        f"| {seen.peak / 2**20:.0f} | {seen.moved / 1e6:.0f} | {worst:.0e} |"
    )


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--share", type=int, default=4)
    options = parser.parse_args()
    print("| program | data, MiB | arena, MiB | seconds, shell to shell | NumPy, seconds | peak resident, MiB ", end="")
    print("| read and written, MB | worst error |\n|---|---|---|---|---|---|---|---|")
    for name in options.only:
        print(measure(name, options.folder / name, options.share), flush=True)


if __name__ == "__main__":
    main()
