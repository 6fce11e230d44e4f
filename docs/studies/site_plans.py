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
EXAMPLES, STUDIED = PAGE.parent / "examples", Path(__file__).parent / "programs"
OTHERS = {
    "CCSD residual, o = 20, v = 120, f64": (EXAMPLES / "physics/ccd_residual.ein", dict(o=20, v=120), "1 GiB"),
    "attention, 16 heads of 4096 x 128, f32": (STUDIED / "heads.ein", dict(h=16, n=4096, d=128), "64 MiB"),
    "the same, causal": (STUDIED / "causal_heads.ein", dict(h=16, n=4096, d=128), "64 MiB"),
    "graph network, 20,000 nodes, 512 to 256 to 64 features, f32": (
        STUDIED / "graph_network.ein",
        dict(n=20000, f=512, g=256, h=64),
        "256 MiB",
    ),
    "CP-ALS sweep, 600 x 500 x 700, rank 32, f64": (
        EXAMPLES / "linear_algebra/cp_als.ein",
        dict(I=600, J=500, K=700, R=32),
        "256 MiB",
    ),
    "Llama, 2 layers of 7B, 2048 positions": (
        EXAMPLES / "models/llama.ein",
        dict(h=32, f=11008, v=32000, s=2048, L=2),
        "8 GiB",
    ),
}
SITES_OF_OTHERS = (2, 8, 64)
SITES: Mapping[str, Sequence[int]] = {name: ALL if name in PRODUCTS else MANY for name in PROGRAMS}


def cell(name: str, sites: int) -> Numbers:
    """Measure one plan, made by a process of its own without stored plans."""
    source, dims, arena = (PROGRAMS | OTHERS)[name]
    text = source if isinstance(source, str) else source.read_text()
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
    for name, by_sites in ((name, numbers[name]) for name in PROGRAMS):
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
    yield from (
        "",
        "Bytes relative to EinDecomp's count, and in brackets max / mean of bytes received and of kernel time:",
        "",
    )
    yield from (
        f"| program | memory of a site | {' | '.join(f'P = {n}' for n in SITES_OF_OTHERS)} |",
        f"|---|---|{'---|' * 3}",
    )
    for name in OTHERS:
        cells = [
            f"{found['received'] / found['counted']:.2f} ({found['max_received']:.2f}, {found['max_kernels']:.2f})"
            for found in numbers[name].values()
        ]
        yield f"| {name} | {OTHERS[name][2]} | {' | '.join(cells)} |"


def main() -> None:
    """Measure all cells."""
    options = options_of(argparse.ArgumentParser(description=__doc__))
    names = [*PROGRAMS, *OTHERS]
    numbers: Numbers = {name: {} for name in names}
    for sites in sorted(ALL, reverse=True):
        for name in (name for name in names if sites in SITES.get(name, SITES_OF_OTHERS)):
            part = f"{names.index(name)}-{sites}"
            numbers[name][str(sites)] = stored_cell(options.parts, part, lambda n=name, p=sites: cell(n, p))  # type: ignore[misc]
    numbers = {name: dict(sorted(found.items(), key=lambda entry: int(entry[0]))) for name, found in numbers.items()}
    print("\n".join(tables(numbers)))
    if options.write:
        NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n")
        PAGE.write_text(with_tables(PAGE.read_text(), tables(numbers)))


if __name__ == "__main__":
    main()
