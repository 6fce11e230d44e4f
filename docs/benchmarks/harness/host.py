"""``einturnip bench host``: every case with every installed peer; writes JSON and a page."""

from __future__ import annotations

import json
import math
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from einturnip import __version__
from einturnip.core.process_resources import usable_cores
from einturnip.devices.peaks import measure_peak
from einturnip.ir.dtypes import F32
from harness.cases import BenchCase, in_memory
from harness.contest import ContenderFigure, contest
from harness.peers import present

OURS = "einturnip"
# Contenders with relaxed accuracy are shown, but are no peers.
INEXACT = "einturnip exact=False"


@dataclass(frozen=True)
class HostOutcome:
    """A case with the result of every contender; einturnip first.

    ``peak``: flops per second of the arithmetic to compare with; 0 if there is none.
    """

    case: BenchCase
    figures: tuple[ContenderFigure, ...]
    peak: float = 0.0

    @property
    def fastest(self) -> ContenderFigure | None:
        """The fastest peer with the same answer."""
        peers = [f for f in self.figures if not f.name.startswith(OURS) and f.agrees and not f.error]
        return min(peers, key=lambda f: f.seconds, default=None)

    @property
    def ratio(self) -> float:
        """einturnip's speed relative to the fastest peer's."""
        return self.fastest.ratio if self.fastest else math.nan


def bench(names: Sequence[str], rounds: int, small: bool) -> Iterator[HostOutcome]:
    """Run the cases whose name contains one of ``names`` (all if empty)."""
    for case in in_memory(small):
        if names and not any(n in case.name for n in names):
            continue
        more = [INEXACT] if case.kind == "l2" else []
        figures = tuple(contest(case.name, [OURS, *more, *present()], rounds, small, case.tolerance))
        yield HostOutcome(case, figures, measure_peak(case.peak, F32, usable_cores()) if case.peak else 0.0)


def line(outcome: HostOutcome) -> str:
    """An outcome in one line."""
    shown = [f"{f.name} {_time(f.seconds)}" if not f.error else f"{f.name}: {f.error}" for f in outcome.figures]
    return f"{outcome.case.name}: {', '.join(shown)}; {outcome.ratio:.2f} x the fastest peer's speed"


def geometric_mean(outcomes: Sequence[HostOutcome]) -> float:
    """The geometric mean of the ratios to the fastest peer."""
    ratios = [o.ratio for o in outcomes if math.isfinite(o.ratio)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def typed() -> str:
    """The command line of this process."""
    return shlex.join(["einturnip", *sys.argv[1:]])


def machine() -> dict[str, Any]:
    """Describe the machine and the versions of its libraries."""
    import threadpoolctl

    from einturnip.devices.host import host_info

    info = host_info()
    blas = [f"{x['internal_api']} {x['version']} {x.get('architecture', '')}" for x in threadpoolctl.threadpool_info()]
    return {
        "processor": info.cpu,
        "cores": info.cores,
        "blas": blas,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "einturnip": __version__,
        "date": date.today().isoformat(),
    }


def write(measured: Sequence[HostOutcome], folder: Path, about: dict[str, Any], command: str) -> list[Path]:
    """Write host.json, host.md and host.svg; stored cases of the same day and machine are kept."""
    from harness.draw import ratios_svg

    folder.mkdir(parents=True, exist_ok=True)
    outcomes = _with_earlier(measured, folder / "host.json", about)
    data = {
        "machine": about,
        "command": command,
        "geometric_mean": geometric_mean(outcomes),
        "cases": [
            {
                "name": o.case.name,
                "flops": o.case.flops,
                "nbytes": o.case.nbytes,
                "ratio": o.ratio,
                "peak": o.peak,
                "contenders": [asdict(f) for f in o.figures],
            }
            for o in outcomes
        ],
    }
    bars = [(o.case.name, o.ratio, *_interval(o)) for o in outcomes if math.isfinite(o.ratio)]
    made = {
        "host.json": json.dumps(data, indent=1) + "\n",
        "host.md": page(outcomes, about, command),
        "host.svg": ratios_svg(bars, "einturnip's speed over the fastest peer's"),
    }
    for name, text in made.items():
        (folder / name).write_text(text)
    return [folder / name for name in made]


def _with_earlier(measured: Sequence[HostOutcome], path: Path, about: dict[str, Any]) -> list[HostOutcome]:
    """Add the stored outcomes of the same day, machine and sizes, in the order of the cases."""
    found = {o.case.name: o for o in measured}
    earlier = json.loads(path.read_text()) if path.exists() else {"machine": {}}
    if earlier["machine"] == about:
        cases = {(c.name, c.flops, c.nbytes): c for small in (False, True) for c in in_memory(small)}
        for case in earlier["cases"]:
            known = cases.get((case["name"], case["flops"], case["nbytes"]))
            if known is not None and known.name not in found:
                found[known.name] = HostOutcome(
                    known, tuple(ContenderFigure(**f) for f in case["contenders"]), case.get("peak", 0.0)
                )
    return [found[c.name] for c in in_memory() if c.name in found]


def _interval(o: HostOutcome) -> tuple[float, float]:
    assert o.fastest is not None
    return o.fastest.low, o.fastest.high


def page(outcomes: Sequence[HostOutcome], about: dict[str, Any], command: str) -> str:
    """The results as Markdown."""
    peers = list(dict.fromkeys(f.name for o in outcomes for f in o.figures))
    rows = [
        "# In memory, compared with other libraries",
        "",
        f"`{command}`, {about['date']}. {about['processor']}, {about['cores']} cores; Python {about['python']}, "
        f"NumPy {about['numpy']}; {'; '.join(about['blas'])}.",
        "",
        "Milliseconds per call: medians of undisturbed rounds; contenders are called alternately, each in a process of "
        "its own. *ratio*: einturnip's speed relative to the fastest peer's of the same round (median and 95 % "
        "interval). *reached*: its rate, for joins also as a fraction of what the cores reached just before on "
        "registers alone (`FMA`: multiply-adds, `min/add`: additions and minima). *peak*: memory of einturnip's "
        "process and of that peer's. `!` marks a wrong answer.",
        "",
        f"Geometric mean of the ratios: **{geometric_mean(outcomes):.2f}**.",
        "",
        "![ratios](host.svg)",
        "",
        "| case | " + " | ".join(peers) + " | ratio | reached | peak MiB |",
        "|---|" + "---:|" * (len(peers) + 3),
    ]
    for o in outcomes:
        of = {f.name: f for f in o.figures}
        cells = [_cell(of.get(name)) for name in peers]
        best, ours = o.fastest, o.figures[0]
        ratio = "" if best is None else f"{best.ratio:.2f} ({best.low:.2f} to {best.high:.2f}), {best.name}"
        peaks = f"{ours.peak_nbytes / 2**20:.0f}" + ("" if best is None else f" / {best.peak_nbytes / 2**20:.0f}")
        rows.append(f"| {o.case.name} | {' | '.join(cells)} | {ratio} | {_reached(o)} | {peaks} |")
    return "\n".join(rows) + "\n"


def _cell(f: ContenderFigure | None) -> str:
    if f is None:
        return ""
    if f.error:
        return "failed"
    return f"{f.seconds * 1e3:.3g}" + ("" if f.agrees else " !")


def _reached(o: HostOutcome) -> str:
    case, f = o.case, o.figures[0]
    if f.error:
        return f.error
    if o.peak:
        return f"{case.flops / f.seconds / 1e9:.0f} GFLOP/s, {case.flops / f.seconds / o.peak:.2f} of {case.peak}"
    if case.flops >= 4 * case.nbytes:
        return f"{case.flops / f.seconds / 1e9:.0f} GFLOP/s"
    return f"{case.nbytes / f.seconds / 1e9:.1f} GB/s"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
