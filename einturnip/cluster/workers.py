"""The workers of a cluster, and the conditions under which they can take part in a run."""

from __future__ import annotations

import platform
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.core.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that takes part in runs.

    ``resident``: its bytes before a run; ``available``: free bytes of its host. ``kind``: a word before its address in
    messages. ``is_coordinator``: it is this process, which makes and keeps the whole plan.
    """

    address: str
    host: str
    pid: int
    resident: int
    available: int
    kind: str = "worker"
    is_coordinator: bool = False

    @property
    def name(self) -> str:
        """The name in messages and reports."""
        return named(self.kind, self.address, self.host)


def named(kind: str, address: str, host: str) -> str:
    """Return the name of a process in messages; the address of some kinds is a name already."""
    return f"{kind} {address} on {host}".lstrip()


@cache
def versions() -> dict[str, str]:
    """Return the versions that all processes of a run must share.

    That of einturnip includes a checksum of its files' sizes.
    """
    folder = Path(__file__).parent.parent
    sizes = sorted((path.relative_to(folder).as_posix(), path.stat().st_size) for path in folder.rglob("*.py"))
    return {
        "Python": platform.python_version(),
        "einturnip": f"{version('einturnip')} ({zlib.crc32(repr(sizes).encode()):08x})",
        "NumPy": np.__version__,
    }


def accepted(reports: dict[str, dict[str, Any]]) -> tuple[Worker, ...]:
    """Return the workers of a cluster, in the order of their reports, by address.

    Raises:
        DeviceError: there are none, or one cannot take part; names it, and what to do.
    """
    if not reports:
        raise DeviceError(
            "the cluster has no workers. help: start some, dask worker tcp://HOST:8786 --nthreads 1 --memory-limit 0"
        )
    expected = versions()
    for address, report in reports.items():
        where = named(report.get("kind", "worker"), address, report["host"])
        for package, found in report["versions"].items():
            if found != expected[package]:
                raise DeviceError(
                    f"{where} has {package} {found}, and this process has {expected[package]}. "
                    "help: install the same version everywhere"
                )
        if report["threads"] != 1:
            raise DeviceError(
                f"{where} has {report['threads']} threads, and einturnip bounds the memory of workers with one. "
                f"help: start it with --nthreads 1, and one worker for each core"
            )
        if report["limit"]:
            raise DeviceError(
                f"{where} has a memory limit of its own, at which Dask stops it. "
                "help: start it with --memory-limit 0; einturnip's --memory bounds it"
            )
    fields = ("host", "pid", "resident", "available", "kind", "is_coordinator")
    return tuple(Worker(address, **{f: r[f] for f in fields if f in r}) for address, r in reports.items())


def default_memory(workers: Sequence[Worker]) -> int:
    """Return the memory of each worker if none is stated: its share of half of what its host has free."""
    on_host = [w.host for w in workers]
    return min(w.resident + w.available // 2 // on_host.count(w.host) for w in workers)
