"""Contractions within a memory, compared with opt_einsum, cotengra and np.einsum.

    python docs/benchmarks/networks.py FOLDER CASES.json... [--memory 1GiB 384MiB 256MiB] [--python PEERS/bin/python]
    [--peers [KIND...]]

CASES.json: a list of ``{"name", "equation", "shapes", "dtype"}`` as in the Einsum Benchmark (Blacher et al., NeurIPS
2024), or ``{"contractions": [{"equation", "sizes"}]}``. Every contender is a process of its own, observed through
/proc; it starts from files and ends with its result in a file. opt_einsum gets ``memory_limit``, cotengra slices to
``target_size``: both in elements of the memory that inputs leave. A contender that exceeded the memory is run again
with its data limited to it (RLIMIT_DATA), to see whether it dies. Seconds are CPU time (user and system). Prints
Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PEER = """import sys, numpy as np
kind, equation, limit, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
arrays = [np.load(f"T{k}.npy") for k in range(count)]
left = max(1, (limit - sum(a.nbytes for a in arrays)) // arrays[0].itemsize)
if kind == "numpy":
    result = np.einsum(equation, *arrays, optimize=True)
elif kind == "opt_einsum":
    import opt_einsum
    result = opt_einsum.contract(equation, *arrays, optimize="auto", memory_limit=left)
else:
    import cotengra
    terms, out = equation.split("->")
    sizes = {x: n for term, a in zip(terms.split(","), arrays) for x, n in zip(term, a.shape)}
    optimizer = cotengra.HyperOptimizer(
        minimize="flops", slicing_opts={"target_size": left}, max_repeats=32, max_time=20, parallel=False,
        methods=["greedy"], progbar=False,
    )
    tree = optimizer.search([tuple(t) for t in terms.split(",")], tuple(out), sizes)
    result = tree.contract(arrays)
np.save("peer.npy", result)
"""

PEERS = {"opt_einsum": "opt_einsum, memory_limit", "cotengra": "cotengra, sliced", "numpy": "np.einsum"}


@dataclass(frozen=True)
class Case:
    """One contraction."""

    name: str
    equation: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str


@dataclass(frozen=True)
class Outcome:
    """One process, observed from outside. Units: CPU seconds, bytes. ``died``: its exit code was not 0."""

    seconds: float
    peak: int
    died: str


def cases(path: Path) -> list[Case]:
    """The contractions of a file of cases."""
    found = json.loads(path.read_text())
    if isinstance(found, list):
        return [Case(c["name"], c["equation"], tuple(map(tuple, c["shapes"])), c["dtype"]) for c in found]
    made = []
    for c in found["contractions"]:
        terms = c["equation"].split("->")[0].split(",")
        shapes = tuple(tuple(c["sizes"][x] for x in term) for term in terms)
        made.append(Case(c["equation"], c["equation"], shapes, "float32"))
    return made


def prepare(folder: Path, case: Case) -> None:
    """Random tensors and the program; numbers are scaled so that long products stay in range."""
    rng = np.random.default_rng(1)
    terms, out = case.equation.split("->")
    names: dict[str, str] = {}
    for letter in case.equation:
        if letter not in ",->":
            names.setdefault(letter, f"x{len(names)}")

    def axes(term: str) -> str:
        return f"[{', '.join(names[x] for x in term)}]" if term else ""

    short = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}[case.dtype]
    lines, product = [], []
    for k, (term, shape) in enumerate(zip(terms.split(","), case.shapes, strict=True)):
        values = rng.random(shape) / np.sqrt(np.prod(shape)) * 2
        np.save(folder / f"T{k}.npy", values.astype(case.dtype))
        lines.append(f'input T{k} : {short}{axes(term)} = "T{k}.npy"')
        product.append(f"T{k}{axes(term)}")
    while len(product) > 8:  # the language limits the nesting, and a * b * c nests once a factor
        product = [f"({' * '.join(product[k : k + 8])})" for k in range(0, len(product), 8)]
    lines += [f"R{axes(out)} = {' * '.join(product)}", 'output R = "R.npy"', ""]
    (folder / "case.ein").write_text("\n".join(lines))


def watch(command: list[str], folder: Path, limit: int | None, patience: float) -> Outcome:
    """Run a command and observe its peak resident memory. ``limit``: maximum bytes of data."""

    def bounded() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    begin = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=bounded
    )
    status, peak, late = Path("/proc") / str(process.pid) / "status", 0, False
    while process.poll() is None:
        try:
            lines = status.read_text().splitlines()
        except OSError:
            break
        peak = max([peak, *(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))])
        if time.perf_counter() - begin > patience:
            process.kill()
            late = True
            break
        time.sleep(0.02)
    error = process.communicate()[1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if late:
        return Outcome(seconds, peak, f"stopped after {patience:.0f} s")
    return Outcome(seconds, peak, _reason(process.returncode, error))


def _reason(code: int, error: str) -> str:
    if code == 0:
        return ""
    last = error.strip().splitlines()[-1:] or [f"exit {code}"]
    return "MemoryError" if "MemoryError" in error or "allocate" in error else last[0][:40]


def shown(run: Callable[[int | None], Outcome], memory: int, answer: Callable[[], float]) -> str:
    """One cell of the table: seconds, peak, and the outcome within the memory."""
    outcome = run(None)
    if outcome.died:
        return f"{outcome.died} ({outcome.peak >> 20})"
    error = answer()
    cell = f"{outcome.seconds:.1f} s ({outcome.peak >> 20})" + (f", wrong by {error:.0e}" if not error < 1e-3 else "")
    if outcome.peak <= memory:
        return cell
    limited = run(memory)
    return f"{cell}, {'dies' if limited.died else 'runs'} when held to it"


def table(folder: Path, options: argparse.Namespace) -> None:
    """All cases, line by line."""
    print(f"| case | memory, MiB | einturnip |{''.join(f' {PEERS[kind]} |' for kind in options.peers)}")
    print("|---|---|---|" + "---|" * len(options.peers), flush=True)
    for case in (c for path in options.cases for c in cases(path)):
        if options.only and options.only not in case.name:
            continue
        for file in folder.glob("*.npy"):
            file.unlink()
        prepare(folder, case)
        for text in options.memory:
            memory = int(float(text[:-3]) * {"GiB": 1 << 30, "MiB": 1 << 20}[text[-3:]])
            command = [
                sys.executable,
                "-m",
                "einturnip",
                "run",
                "case.ein",
                "--quiet",
                "--memory",
                text,
                "--spill",
                ".",
            ]
            cells = [shown(lambda limit, c=command: watch(c, folder, limit, options.patience), memory, lambda: 0.0)]
            for kind in options.peers:
                known = [options.python, "-c", PEER, kind, case.equation, str(memory), str(len(case.shapes))]
                cells.append(
                    shown(
                        lambda limit, c=known: watch(c, folder, limit, options.patience), memory, lambda: error(folder)
                    )
                )
            print(f"| {case.name} | {memory >> 20} | {' | '.join(cells)} |", flush=True)


def error(folder: Path) -> float:
    """The relative difference of a peer's answer from einturnip's; NaN if there is none."""
    if not (folder / "R.npy").exists():
        return float("nan")
    ours, theirs = (np.load(folder / name, mmap_mode="r") for name in ("R.npy", "peer.npy"))
    largest = float(np.max(np.abs(theirs))) or 1.0
    return float(np.max(np.abs(np.subtract(ours, theirs)))) / largest


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", type=Path, nargs="+")
    parser.add_argument("--memory", nargs="+", default=["1GiB", "384MiB", "256MiB"])
    parser.add_argument("--python", default=sys.executable, help="an interpreter with opt_einsum and cotengra")
    parser.add_argument("--patience", type=float, default=300, help="seconds after which a contender is stopped")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[*PEERS], help="those to run beside einturnip")
    parser.add_argument("--only", default="", help="cases with this in their names")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(options.folder)
    table(options.folder, options)


if __name__ == "__main__":
    main()
