"""The results of ``einturnip bench gpu`` as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def told(result: dict[str, Any]) -> str:
    """One case in a line."""
    parts = [f"{name} {seconds:.4g} s" for name, seconds in result["seconds"].items()]
    return "; ".join(parts + [f"{name} failed: {why}" for name, why in result["failed"].items()])


def page(done: dict[str, Any]) -> str:
    """The machine, its ceilings, and a table of cases."""
    machine = done["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items())
    lines = ["# einturnip bench gpu", "", f"{machine['gpu']}; {versions}. Command: `{machine['command']}`."]
    lines += ["Medians of interleaved runs. Of parts a and b kernels alone are counted, of the others whole runs.", ""]
    if "context_nbytes" in machine:
        lines += [f"The context takes {machine['context_nbytes'] / 2**20:.0f} MiB, which no peak below holds.", ""]
    limits = machine.get("ceilings", {})
    lines += [f"- {name}: {rate / 1e12:.3f} T/s" for name, rate in limits.items()]
    lines += ["", "| case | run | date | seconds | of no cap | of the bound | TFLOP/s | GB/s | peak MiB | us an op |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for key, result in done.get("cases", {}).items():
        lines += _rows(key, result, limits)
    lines += ["", "Stalls in seconds, by what was waited for:", ""]
    for key, result in done.get("cases", {}).items():
        for name, report in result["reports"].items():
            stalls = ", ".join(f"{cause} {seconds:.3g}" for cause, seconds in report["stalls"].items() if seconds)
            lines += [f"- {key}, {name}: {stalls}"] if stalls else []
    return "\n".join(lines) + "\n"


def bound_seconds(result: dict[str, Any], report: dict[str, Any], limits: dict[str, float]) -> float:
    """The longer of computing at the measured ceiling and of moving the bytes each way; 0 if unknown."""
    compute = result["flops"] / limits[result["ceiling"]] if result["ceiling"] in limits else 0.0
    moved = [0.0, 0.0]
    for link, nbytes in report["link_bytes"].items():
        source, _, target = link.partition("->")
        if "cuda" in target:
            moved[0] += nbytes / limits.get("host to device", float("inf"))
        elif "cuda" in source:
            moved[1] += nbytes / limits.get("device to host", float("inf"))
    return max(compute, *moved)


def _rows(key: str, result: dict[str, Any], limits: dict[str, float]) -> Iterator[str]:
    free = result["seconds"].get("no cap", result["seconds"].get("no cap, free order"))
    for name, seconds in result["seconds"].items():
        report = result["reports"].get(name)
        share = f"{free / seconds:.2f}" if free and seconds else ""
        bound = bound_seconds(result, report, limits) if report else 0.0
        of_bound = f"{bound / seconds:.2f}" if bound and seconds else ""
        rate = f"{result['flops'] / seconds / 1e12:.2f}" if seconds else ""
        moved = f"{result['nbytes'] / seconds / 1e9:.0f}" if seconds else ""
        peak = f"{result['peak_nbytes'][name] / 2**20:.0f}" if name in result["peak_nbytes"] else ""
        each = f"{report['host_us_per_op']:.1f}" if report else ""
        cells = (key, name, result["date"], f"{seconds:.4g}", share, of_bound, rate, moved, peak, each)
        yield f"| {' | '.join(cells)} |"
    for name, why in result["failed"].items():
        yield f"| {key} | {name} | {result['date']} | failed: {why} | | | | | | |"
