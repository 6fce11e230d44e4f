"""Formats the results of ``einturnip bench disk`` as lines, JSON and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from einturnip.core.units import format_size
from harness.disk import FORMS, SHARES, DiskRecord, DiskResult, DiskRun, ways
from harness.disk_cases import DiskCase, on_disk
from harness.disk_goals import goals, lines
from harness.disk_peers import OURS, PEERS


def line(case: DiskCase, run: DiskResult) -> str:
    """A run in one line."""
    way = run.way
    limit = _memory(run) if way.share else "no limit"
    how = f"{case.name}, {way.form}, {'cold' if way.cold else 'warm'}, {limit}: {way.contender}"
    if run.error:
        return f"{how}: {run.error}"
    peak = f"peak {format_size(run.resident)} ({format_size(run.anonymous)} beside mapped files)"
    return f"{how} {run.seconds:.2f} s, {peak}{'' if run.agrees else ', another answer'}"


def write(records: Mapping[str, DiskRecord], out: Path, about: dict[str, Any], command: str) -> list[Path]:
    """Write the results as disk.json, from which ``earlier`` resumes, and disk.md."""
    out.mkdir(parents=True, exist_ok=True)
    cases = [
        {"name": r.case.name, "flops": r.case.flops, "data_nbytes": r.case.data_nbytes, "expected": r.expected}
        | {"absent": [asdict(way) for way in r.absent], "runs": [asdict(run) for run in r.runs]}
        for r in records.values()
    ]
    data = {"machine": about, "command": command, "cases": cases}
    (out / "disk.json").write_text(json.dumps(data, indent=1) + "\n")
    (out / "disk.md").write_text(page(records, about, command))
    return [out / "disk.json", out / "disk.md"]


def earlier(out: Path, about: Mapping[str, Any], small: bool) -> tuple[dict[str, DiskRecord], dict[str, Any] | None]:
    """The earlier results in a folder for this machine and these sizes, and the machine's record."""
    path = out / "disk.json"
    data = json.loads(path.read_text()) if path.exists() else {"machine": {}}
    there = data["machine"]
    if any(there.get(key) != about[key] for key in about if key != "date"):
        return {}, None
    found = {}
    cases = {c.name: c for c in on_disk(small)}
    for kept in data["cases"]:
        case = cases.get(kept["name"])
        if case is not None and case.data_nbytes == kept["data_nbytes"]:
            read = [(DiskRun(**run["way"]), run) for run in kept["runs"]]
            runs = [DiskResult(**{"memory": way.memory(case)} | run | {"way": way}) for way, run in read]
            found[case.name] = DiskRecord(case, runs, [DiskRun(**way) for way in kept["absent"]], kept["expected"])
    return found, there


def page(records: Mapping[str, DiskRecord], about: dict[str, Any], command: str) -> str:
    """The results as Markdown."""
    rows = [
        "# Out of core: files larger than memory",
        "",
        f"`{command}`, {about['date']}. {about['processor']}, {about['cores']} cores; Python {about['python']}, "
        f"NumPy {about['numpy']}; disk {about['disk']}.",
        "",
        "Seconds from cold or warm input files to an output file on the disk. Every run is a process of its own; "
        "contenders run alternately. *memory*: the limit of the process, as a share of all data or of a peer's peak "
        "without a limit. Cubed receives the limit as its setting; Dask and memory maps have none. Where einturnip "
        "needs more, its minimum is used. A process that exceeds the limit, without pages of mapped files, is ended. "
        "*peak*: resident memory, in parentheses without pages of mapped files. *cold*: no input is in the page "
        "cache. Below each case: the goals, and whether they are met.",
        "",
    ]
    for record in records.values():
        case, runs = record.case, record.medians()
        free = next((r.seconds for r in runs if r.way.contender == OURS and not r.way.share), float("nan"))
        rows += [
            f"## {case.name}: {format_size(case.data_nbytes)} of data, {case.flops / 1e9:,.0f} GFLOP",
            "",
            "| contender | format | cache | memory | seconds | of ours without a limit | peak | read | written |",
            "|---|---|---|---|---:|---:|---:|---:|---:|",
        ]
        rows += [*(_row(r, free) for r in runs), "", *_missing(record), *lines(goals(case, runs, about))]
    return "\n".join(rows)


def _missing(record: DiskRecord) -> list[str]:
    """The ways of a case that were not run."""
    there = {run.way for run in record.runs}.union(record.absent)
    missing = [str(way) for way in ways(tuple(PEERS), SHARES, FORMS) if way not in there]
    return [f"Not measured: {', '.join(missing)}.", ""] if missing else []


def _memory(run: DiskResult) -> str:
    way = run.way
    of = f" of {way.of}'s peak" if way.of else ""
    return f"1/{way.share}{of} ({format_size(run.memory or 0)}{', the minimum' if run.raised else ''})"


def _row(r: DiskResult, free: float) -> str:
    way = r.way
    memory = _memory(r) if way.share else "all"
    start = f"| {way.contender} {r.version} | {way.form} | {'cold' if way.cold else 'warm'} | {memory} "
    if r.error:
        return f"{start}| {r.error.replace('|', ' ')[:80]} | | | | |"
    seconds = f"{r.seconds:.2f}" + ("" if r.agrees else " !")
    peak = f"{format_size(r.resident)} ({format_size(r.anonymous)})"
    return f"{start}| {seconds} | {r.seconds / free:.2f} | {peak} | {format_size(r.read)} | {format_size(r.written)} |"
