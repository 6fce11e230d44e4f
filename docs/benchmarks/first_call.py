"""The first call from shell to shell: planning and run, predicted and measured, of forty programs and 14 networks.

    python docs/benchmarks/first_call.py FOLDER [--instances CASES.json] [--before CHECKOUT] [--only WORD ...]
    [--plan-only]

The programs are those of suite_programs.py. CASES.json holds networks of the Einsum Benchmark (Blacher et al., NeurIPS
2024), a list of ``{"name", "equation", "shapes", "dtype"}``; the other networks are drawn, regular and random ones by
opt_einsum's generator (which requires pytest). Each run is a new process without any cache, alternately with the
checkout ``--before`` if given. ``shell``: user CPU seconds of the process; the others are wall-clock seconds of its
report. Rates are those of FOLDER/machine.json, if ``suite.py FOLDER --calibrate`` made it. ``--plan-only`` needs no
data and no quiet machine: ``shell`` is then that of ``einturnip plan``. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum as oe
from opt_einsum.testing import rand_equation

import suite
from einturnip.devices.stored import SWITCH
from networks import Case, cases, prepare
from suite_programs import POOL, SUITE

ARENA = 1024


def regular(n: int, degree: int, results: int, most: int) -> tuple[str, list[tuple[int, ...]]]:
    """A random network of ``n`` tensors of ``degree`` labels each, of sizes from 2 to ``most``."""
    equation, shapes = rand_equation(n, degree, n_out=results, d_min=2, d_max=most, seed=3)[:2]
    return equation, [tuple(getattr(s, "shape", s)) for s in shapes]


def connected(edges: list[tuple[int, int]], size: int) -> tuple[str, list[tuple[int, ...]]]:
    """A network to a scalar with a label of ``size`` for each edge."""
    terms = [""] * (1 + max(map(max, edges)))
    for label, edge in enumerate(edges):
        for tensor in edge:
            terms[tensor] += oe.get_symbol(label)
    return ",".join(terms) + "->", [(size,) * len(term) for term in terms]


def lattice(rows: int, columns: int) -> list[tuple[int, int]]:
    """The edges of a rectangular lattice."""
    at = [(i, j) for i in range(rows) for j in range(columns)]
    right = [(i * columns + j, i * columns + j + 1) for i, j in at if j + 1 < columns]
    return right + [(i * columns + j, (i + 1) * columns + j) for i, j in at if i + 1 < rows]


def sparse(n: int, edges: int) -> list[tuple[int, int]]:
    """A path through ``n`` tensors, and random edges besides."""
    rng = random.Random(3)
    return [(i, i + 1) for i in range(n - 1)] + [tuple(rng.sample(range(n), 2)) for _ in range(edges - n + 1)]  # type: ignore[misc]


def networks(instances: Path | None) -> Iterator[Case]:
    """The networks of the file with more than two tensors, then ten drawn ones of 100 to 400."""
    yield from (case for case in (cases(instances) if instances else ()) if len(case.shapes) > 2)
    rng = random.Random(1)
    drawn = {
        "100 tensors of 3 labels": regular(100, 3, 0, 2),
        "120 tensors of 3 labels": regular(120, 3, 1, 2),
        "300 tensors of 2 labels": regular(300, 2, 2, 3),
        "200 tensors, 240 labels": connected(sparse(200, 240), 2),
        "400 tensors, 480 labels": connected(sparse(400, 480), 2),
        "lattice of 10 x 10": connected(lattice(10, 10), 2),
        "lattice of 14 x 14": connected(lattice(14, 14), 2),
        "lattice of 4 x 60": connected(lattice(4, 60), 3),
        "tree of 400": connected([(rng.randrange(max(0, i - 6), i), i) for i in range(1, 400)], 6),
        "chain of 400": connected(lattice(1, 400), 24),
    }
    for name, (equation, shapes) in drawn.items():
        yield Case(name, equation, tuple(shapes), "float32")


def of_network(folder: Path, case: Case) -> suite.Case:
    """Write a network's tensors, and return it as a program of the suite."""
    prepare(folder, case)
    text = (folder / "case.ein").read_text().replace(' = "R.npy"', "")
    return suite.Case(case.name, text, {}, ARENA, False)


def first_call(folder: Path, case: suite.Case, checkout: Path, plan_only: bool) -> dict[str, float]:
    """Run or plan a program by a checkout's einturnip without caches; the columns of the table."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ |= {"PYTHONPATH": os.fspath(checkout), "XDG_CACHE_HOME": empty}
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        report = planned(folder, case) if plan_only else suite.run(case, folder)
        user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    found = {"shell, s": user, "predicted, s": report["predicted"]["seconds"]}
    if plan_only:
        return found
    return found | {"planning, s": report["planning_seconds"], "run, s": report["wall_seconds"]}


def planned(folder: Path, case: suite.Case) -> dict[str, Any]:
    """The report of ``einturnip plan``; inputs that do not exist are files without data."""
    for name in {*case.files.values()}:
        if not (folder / f"{name}.npy").exists():
            np.lib.format.open_memmap(folder / f"{name}.npy", "w+", *POOL[name][:2])
    (folder / "program.ein").write_text(case.text)
    command = [sys.executable, "-m", "einturnip", "plan", "program.ein", "--format", "json", "--no-budgets"]
    made = subprocess.run([*command, *suite.arguments(case, folder)], check=True, stdout=subprocess.PIPE)
    return json.loads(made.stdout)


def main() -> None:
    """Run all programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--instances", type=Path, help="networks of the Einsum Benchmark")
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--only", nargs="*", default=[], help="programs with one of these words in their names")
    parser.add_argument("--plan-only", action="store_true", help="einturnip plan, which needs no data")
    options = parser.parse_args()
    folder, instances = options.folder.resolve(), options.instances and options.instances.resolve()
    checkouts = [path.resolve() for path in (options.before, Path(__file__).parents[2]) if path]
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)  # python -m looks for modules there first
    os.environ[SWITCH] = os.fspath(folder / "machine.json") if (folder / "machine.json").exists() else "off"
    rows = list[tuple[dict[str, float], ...]]()
    for case in (*SUITE, *networks(instances)):
        if options.only and not any(word in case.name for word in options.only):
            continue
        program = of_network(folder, case) if isinstance(case, Case) else case
        rows.append(tuple(first_call(folder, program, checkout, options.plan_only) for checkout in checkouts))
        if len(rows) == 1:
            print(f"| program | {' | '.join(rows[0][0])} |\n{'|---' * (1 + len(rows[0][0]))}|")
        cells = (" → ".join(f"{run[column]:.2f}" for run in rows[-1]) for column in rows[-1][0])
        print(f"| {case.name} | {' | '.join(cells)} |", flush=True)
    sums = (sum(runs[k]["shell, s"] for runs in rows) for k in range(len(checkouts)))
    print(f"\nShell, all: {' → '.join(f'{seconds:.1f}' for seconds in sums)} s.")
    last = [runs[-1] for runs in rows]
    print(f"Slowest: {max(found['shell, s'] for found in last):.2f} s.")
    if not options.plan_only:
        near = sum(0.75 <= found["predicted, s"] / found["run, s"] <= 1.25 for found in last)
        print(f"Of {len(last)} predictions {near} are within 25 %.")


if __name__ == "__main__":
    main()
