"""Writes the results of ``clusters.py`` as lines, JSON and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from einturnip.core.units import format_size
from harness.cluster_bench import MEMORY, WORKERS, ClusterOutcome, ClusterTrial
from harness.cluster_cases import ClusterCase
from harness.cluster_peers import OURS, PACKAGES, present

# The peers that bars are about; Ray actors are written by hand.
_ARRAYS = ("dask.array", "Cubed")


def line(case: ClusterCase, trial: ClusterTrial) -> str:
    """A run in one line."""
    start = f"{case.name}: {trial.contender}"
    if trial.error:
        return f"{start}: {trial.error}"
    planning = f" ({trial.planning:.2f} s of planning)" if trial.planning else ""
    other = "" if trial.agrees else ", another result"
    between, peak = format_size(trial.between), format_size(trial.peak)
    return f"{start} {trial.seconds:.2f} s{planning}, {between} between workers, peak {peak}{other}"


def write(outcomes: Sequence[ClusterOutcome], out: Path, about: Mapping[str, Any], command: str) -> list[Path]:
    """Write the results as clusters.json and clusters.md."""
    out.mkdir(parents=True, exist_ok=True)
    cases = [{"name": o.case.name, "runs": [asdict(trial) for trial in o.trials]} for o in outcomes]
    data = {"machine": dict(about), "command": command, "cases": cases}
    (out / "clusters.json").write_text(json.dumps(data, indent=1) + "\n")
    (out / "clusters.md").write_text(page(outcomes, about, command))
    return [out / "clusters.json", out / "clusters.md"]


def page(outcomes: Sequence[ClusterOutcome], about: Mapping[str, Any], command: str) -> str:
    """The results as Markdown."""
    absent = [f"{name} (`pip install {package}`)" for name, package in PACKAGES.items() if name not in present()]
    rows = [
        "# Clusters: compared with dask.array, Cubed and Ray",
        "",
        f"`{command}`, {about['date']}. {about['processor']}, {about['cores']} cores; Python {about['python']}, "
        f"NumPy {about['numpy']}. Other programs took {about['disturbed']:.0%} of the CPU time during the median run.",
        "",
        f"{WORKERS} local workers of one thread and {format_size(MEMORY)} each, from Zarr stores to a Zarr store that "
        "is on the disk. Every run has workers of its own, which have run a small case; inputs are in the page cache. "
        "Contenders run alternately; time and bytes are medians, the peak is that of the fullest worker in any run.",
        "",
        "- einturnip bounds the memory of its workers itself (`memory=`); its time includes planning.",
        "- Dask bounds the workers of dask.array and Cubed (`memory_limit=`): it spills, pauses, and ends a worker "
        "above 95%. Cubed also receives the limit as `allowed_mem`.",
        "- dask.array and Cubed compute the formulas in array operations, and sums by key with one function for each "
        "block (`harness/cluster_peers.py`).",
        "- Ray actors, written by hand for the product, read panels of both matrices from the stores. Nothing bounds "
        "their memory.",
        "- *between workers*: bytes that workers receive from each other: `report.sites` of einturnip, "
        "`transfer_incoming_log` of Dask. *read*, *written*: bytes of files, of all workers.",
        "",
        *([f"Not installed where this was measured: {', '.join(absent)}.", ""] if absent else []),
    ]
    for outcome in outcomes:
        rows += [*_case(outcome), ""]
    return "\n".join(rows)


def _case(outcome: ClusterOutcome) -> Iterator[str]:
    case, found = outcome.case, outcome.medians()
    yield f"## {case.name}: {format_size(case.nbytes)}, {case.flops / 1e9:,.0f} GFLOP"
    yield ""
    yield "| contender | runs | seconds | between workers | read | written | peak |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, trial in found.items():
        count = sum(run.contender == name for run in outcome.trials)
        start = f"| {name} {trial.version} | {count} "
        if trial.error:
            yield f"{start}| {trial.error[:100].replace('|', ' ')} | | | | {format_size(trial.peak)} |"
            continue
        seconds = f"{trial.seconds:.2f}" + ("" if trial.agrees else " (another result)")
        sizes = (trial.between, trial.read, trial.written, trial.peak)
        yield f"{start}| {seconds} | {' | '.join(format_size(int(nbytes)) for nbytes in sizes)} |"
    if OURS in found:
        yield ""
        yield "| bar | measured | met |"
        yield "|---|---|---|"
        for bar, measured, met in bars(found):
            yield f"| {bar} | {measured} | {'yes' if met else '**no**'} |"


def bars(found: Mapping[str, ClusterTrial]) -> Iterator[tuple[str, str, bool]]:
    """The bars of a case, what was measured, and whether each is met."""
    ours = found[OURS]
    within = not ours.error and ours.agrees and ours.peak <= MEMORY
    yield "finishes within the memory of each worker", ours.error or format_size(ours.peak), within
    for name in _ARRAYS:
        if name not in found:
            continue
        theirs = found[name]
        if theirs.error or ours.error:
            yield f"finishes where {name} does not", theirs.error[:60].replace("|", " "), within
            continue
        ratio = ours.seconds / theirs.seconds
        yield f"not slower than {name}", f"{ratio:.2f} of its time", ratio <= 1
        if name == "dask.array":
            share = f"{ours.between / theirs.between:.2f} of them" if theirs.between else "it has none"
            yield f"at most half of {name}'s bytes between workers", share, 2 * ours.between <= theirs.between
