"""Bytes, balance, time and memory of plans for P sites: the tables of docs/decomposition.md.

    python docs/studies/site_plans.py [--parts FOLDER] [--write]

``--parts`` stores each cell in FOLDER, so that the next run resumes. ``--write`` stores the numbers in site_plans.json
and the tables in the page. Seconds are those of the CPU, and peaks those of the process, of ``einturnip plan``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pages import Numbers, options_of, stored_cell, with_tables

NUMBERS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "decomposition.md"
PRODUCT = "input A : f64[n, m], B : f64[m, p]\nC[i,k] = A[i,j] * B[j,k]\noutput C\n"
LADDER = "input W : f64[v, v, v, v], T : f64[o, o, v, v]\nR[i,j,a,b] = W[a,b,c,d] * T[i,j,c,d]\noutput R\n"
MTTKRP = (
    "input X : f64[i, j, k], B : f64[j, r], C : f64[k, r]\nM[i,r] = sum[j,k] X[i,j,k] * B[j,r] * C[k,r]\noutput M\n"
)
RANK_3 = "input A : f64[i, j, k], B : f64[k, l]\nC[i,j,l] = A[i,j,k] * B[k,l]\noutput C\n"
PROGRAMS = {
    "product, 40,000 x 40,000, f64": (PRODUCT, dict(n=40000, m=40000, p=40000), "4 GiB"),
    "CCSD ladder, o = 40, v = 200, f64": (LADDER, dict(o=40, v=200), "4 GiB"),
    "MTTKRP, 2000 x 2000 x 2000, rank 64, f64": (MTTKRP, dict(i=2000, j=2000, k=2000, r=64), "1 GiB"),
    "300 x 200 x 8000 by 8000 x 6000, f64": (RANK_3, dict(i=300, j=200, k=8000, l=6000), "1 GiB"),
}
PRODUCTS, (ALL, MANY) = (
    [name for name in PROGRAMS if "MTTKRP" not in name],
    ((2, 4, 8, 16, 64, 256, 1024), (8, 64, 1024)),
)
SITES: Mapping[str, Sequence[int]] = {name: ALL if name in PRODUCTS else MANY for name in PROGRAMS}


def cell(name: str, sites: int) -> Numbers:
    """Measure one plan, made by a process of its own without stored plans."""
    text, dims, arena = PROGRAMS[name]
    with tempfile.TemporaryDirectory() as folder:
        (program := Path(folder, "p.ein")).write_text(text)
        sizes = [x for label, size in dims.items() for x in ("--dim", f"{label}={size}")]
        command = [sys.executable, "-m", "einturnip", "plan", str(program), *sizes, "--sites", str(sites)]
        command += ["--arena", arena.replace(" ", ""), "--no-budgets", "--format", "json"]
        with Path(folder, "plan.json").open("w") as out:
            process = subprocess.Popen(command, stdout=out, env=os.environ | {"EINTURNIP_PLANS": "off"})
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{name}, P = {sites}: {' '.join(command)} failed")
        plan = json.loads(Path(folder, "plan.json").read_text())
    received = [site["bytes_in"] + site["first_read_bytes"] for site in plan["sites"]]
    kernels = [site["kernel_seconds"] for site in plan["sites"]]
    bound = plan["site_lower_bound_bytes"]
    return {
        "received": sum(received),
        "counted": plan["eindecomp_bytes"],
        "over_bound": round(plan["exchanged_bytes"] / bound, 3) if bound else None,
        "max_received": round(max(received) * sites / sum(received), 3),
        "max_kernels": round(max(kernels) * sites / sum(kernels), 3),
        "cpu_seconds": round(used.ru_utime + used.ru_stime),
        "peak_mib": used.ru_maxrss >> 10,
    }


def tables(numbers: Numbers) -> Iterator[str]:
    """The lines of the page's tables."""
    head = ("program", "memory of a site", "P", "between sites and first reads", "EinDecomp's count")
    more = ("max / mean received", "max / mean kernel time", "planned in")
    yield from ("", f"| {' | '.join((*head, *more))} |", f"|{'---|' * (len(head) + len(more))}")
    for name, by_sites in numbers.items():
        label = f"{name} | {PROGRAMS[name][2]}"
        for sites, found in by_sites.items():
            gigabytes = " | ".join(f"{found[key] / 1e9:.1f} GB" for key in ("received", "counted"))
            balance = f"{found['max_received']:.2f} | {found['max_kernels']:.2f}"
            yield f"| {label} | {sites} | {gigabytes} | {balance} | {found['cpu_seconds']} s, {found['peak_mib']} MiB |"
            label = " | "
    yield from ("", "Bytes beyond one copy of the inputs, relative to the lower bound:", "")
    yield from (f"| program | {' | '.join(f'P = {n}' for n in ALL)} |", f"|---|{'---|' * len(ALL)}")
    for name in PRODUCTS:
        ratios = [f"{found['over_bound']:.2f}" for found in numbers[name].values()]
        yield f"| {name} | {' | '.join(ratios)} |"


def main() -> None:
    """Measure all cells."""
    options = options_of(argparse.ArgumentParser(description=__doc__))
    numbers: Numbers = {name: {} for name in PROGRAMS}
    for sites in sorted(ALL, reverse=True):
        for name in (name for name in PROGRAMS if sites in SITES[name]):
            part = f"{list(PROGRAMS).index(name)}-{sites}"
            numbers[name][str(sites)] = stored_cell(options.parts, part, lambda n=name, p=sites: cell(n, p))  # type: ignore[misc]
    numbers = {name: dict(sorted(found.items(), key=lambda entry: int(entry[0]))) for name, found in numbers.items()}
    print("\n".join(tables(numbers)))
    if options.write:
        NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n")
        PAGE.write_text(with_tables(PAGE.read_text(), tables(numbers)))


if __name__ == "__main__":
    main()
