"""``einturnip bench gpu``: cases, caps and peers, interleaved; resumes from stored results."""

from __future__ import annotations

import contextlib
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.api.program import compile as compile_program
from einturnip.core.errors import EinturnipError
from einturnip.devices.cuda.probe import probe
from einturnip.devices.kind import DeviceChoice
from harness.gpu_cases import GB, GpuCase, gpu_cases
from harness.gpu_ceilings import DriverMemory, ceilings
from harness.gpu_page import page, told
from harness.gpu_peers import peers
from harness.host import typed

ROUNDS = 5
ORDERS = {"critical-path": "free order", "fixed": "fixed order", "double-buffering": "double buffering"}
PACKAGES = ("einturnip", "numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "accelerate")
Done = dict[str, Any]


def run(out: Path, device: str, chosen: DeviceChoice, parts: str, seconds: float, tiny: bool) -> Iterator[str]:
    """Run the parts that ``out`` lacks, yielding a line for each case; then write the page."""
    file = out / "gpu.json"
    done: Done = json.loads(file.read_text()) if file.exists() else {}
    known = done.setdefault("machine", {})
    known |= _machine(chosen, device)
    memory = _watched(chosen, known) if chosen.kind.name == "cuda" else None
    measured = done.setdefault("cases", {})
    for part in parts:
        until = time.monotonic() + seconds
        for case in (c for c in gpu_cases(tiny) if c.part in ("cd" if part == "e" else part)):
            key = f"e: {case.name}" if part == "e" else case.name
            if key in measured:
                continue
            if time.monotonic() > until:
                yield f"{key}: no time left for this part; run the command again"
                continue
            deadline = until if measured else float("inf")
            measured[key] = _measured(case, device, part == "e", "cpu" if tiny else device, deadline, memory)
            file.write_text(json.dumps(done, indent=1) + "\n")
            yield f"{key}: {told(measured[key])}"
    if memory is not None:
        memory.close()
    (out / "gpu.md").write_text(page(done))
    yield f"kept in {file} and {out / 'gpu.md'}"


def _watched(chosen: DeviceChoice, known: Done) -> DriverMemory | None:
    """The counter of the GPU's memory, if the driver's library is available; measures the ceilings once."""
    from einturnip.devices.cuda.calls import CupyCalls

    memory = None
    with contextlib.suppress(OSError):
        memory = DriverMemory(chosen.number)
    before = memory.used() if memory is not None else 0
    calls = CupyCalls(chosen.number)
    if memory is not None:
        known["context_nbytes"] = memory.used() - before
    if "ceilings" not in known:
        faster = CupyCalls(chosen.number, tf32=True)
        known["ceilings"] = ceilings(calls) | {"cuBLAS tf32": ceilings(faster)["cuBLAS f32"]}
        faster.close()
    calls.close()
    return memory


def _machine(chosen: DeviceChoice, device: str) -> dict[str, Any]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    gpu = (
        next((g.name for g in probe().gpus if g.number == chosen.number), "")
        if chosen.kind.name == "cuda"
        else "simulated"
    )
    return {"gpu": gpu, "device": device, "driver": probe().driver, "versions": versions, "command": typed()}


def _measured(
    case: GpuCase, device: str, orders: bool, of_peers: str, until: float, memory: DriverMemory | None
) -> Done:
    """Medians of interleaved runs under every cap, and of the peers'; an error replaces its figure."""
    data = inputs(case)
    reports: dict[str, Any] = {}
    peaks: dict[str, int] = {}
    runs: dict[str, Callable[[], float]] = {}
    for cap in case.caps:
        for policy, word in ORDERS.items() if orders else (("critical-path", ""),):
            name = "no cap" if cap is None else f"{cap / GB:g} GB"
            name += f", {word}" if orders else ""
            runs[name] = _ours(case, data, device, cap, policy, (name, reports, peaks), memory)
    failed: dict[str, str] = {}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for name, prepare in {} if orders else peers(case, data, of_peers).items():
        taken[name] = []
        try:
            runs[name] = prepare()
        except Exception as error:  # any error of a peer is its result
            failed[name] = _first(error)
    for _ in range(ROUNDS):
        for name, one in runs.items():
            if name in failed or (taken[name] and time.monotonic() > until):
                continue
            try:
                taken[name].append(one())
            except (EinturnipError, RuntimeError, MemoryError) as error:
                failed[name] = _first(error)
    runs.clear()
    gc.collect()
    return {
        "seconds": {name: statistics.median(t) for name, t in taken.items() if t},
        "runs": taken,
        "failed": failed,
        "reports": reports,
        "peak_nbytes": peaks,
        "flops": case.case.flops,
        "nbytes": case.case.nbytes,
        "ceiling": f"cuBLAS {'tf32' if case.tf32 else case.dtype}",
        "date": time.strftime("%Y-%m-%d"),
    }


def _ours(
    case: GpuCase, data: Any, device: str, cap: int | None, policy: str, into: tuple[str, Done, Done],
    memory: DriverMemory | None,
) -> Callable[[], float]:  # fmt: skip
    """One run of einturnip; in parts a and b only kernels count, since the peers' operands are on the GPU."""
    program = compile_program(case.case.program)
    word = f"{device}+tf32" if case.tf32 and device.startswith("cuda") else device
    name, reports, peaks = into

    def once() -> float:
        before = memory.restart() if memory is not None else 0
        report = program(data=data, device=word, memory=cap, policy=policy).report
        if memory is not None:
            peaks[name] = max(peaks.get(name, 0), memory.peak - before)
        told = replace(report, order=(), events=(), timeline=None)
        n = sum(told.ops.values())
        reports[name] = {
            "lanes": told.lanes, "stalls": told.stalls, "link_bytes": told.link_bytes, "ops": n,
            "wall_seconds": told.wall_seconds, "host_us_per_op": 1e6 * told.wall_seconds / max(1, n),
            "arena_nbytes": told.arena_nbytes, "predicted": told.predicted.seconds,
        }  # fmt: skip
        return told.lanes["compute"] if case.part in "ab" and n < 100 else told.wall_seconds

    return once


def inputs(case: GpuCase) -> dict[str, Any]:
    """Random numbers, the same at every call; large arrays are drawn in f32 in blocks."""
    import ml_dtypes

    dtype = {"f16": np.float16, "f32": np.float32, "bf16": ml_dtypes.bfloat16}[case.dtype]
    random = np.random.default_rng(0)
    found = {}
    for name, shape in case.case.shapes.items():
        array = np.empty(shape, dtype)
        flat = array.reshape(-1)
        for start in range(0, flat.size, 1 << 24):
            part = flat[start : start + (1 << 24)]
            part[...] = (random.random(part.size, np.float32) - 0.5) / 8
        found[name] = array
    return found


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
