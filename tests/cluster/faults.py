"""A run on workers to which something happens at a drawn instant."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import einturnip as et
from einturnip.cluster.cluster_run import ClusterRun
from einturnip.core.errors import EinturnipError

STATEMENTS = 4
# Each step needs the one before, so that a run has many transfers.
TEXT = "input A : f64[n,n]\nB[i,j] = A[i,k] * A[k,j] / 8\n" + "".join(
    f"{'BCDE'[k + 1]}[i,j] = {'BCDE'[k]}[i,k] * A[k,j] / 8\n" for k in range(STATEMENTS - 1)
) + "output E\n"  # fmt: skip
BEGUN = r"line [2-5]: [B-E]\[i,j\] = [A-D]\[i,k\] \* A\[k,j\] / 8"
N = 560


def matrix() -> np.ndarray[Any, Any]:
    """Return an input whose results are exact."""
    return np.random.default_rng(0).integers(-1, 2, (N, N)).astype(float)


def result() -> np.ndarray[Any, Any]:
    """Return what the program computes."""
    a = matrix()
    found = a
    for _ in range(STATEMENTS):
        found = found @ a / 8
    return found


class Instant:
    """When something happens in a run.

    ``joined``: a site has been sent its part; ``ready``: it waits for the others; a share: of all ops have ended;
    ``done``: a site has ended.
    """

    def __init__(self, drawn: float) -> None:
        self.share = (drawn - 0.2) / 0.7
        self.state = "joined" if drawn < 0.1 else "ready" if drawn < 0.2 else "done" if drawn > 0.9 else "progress"
        self._ops = dict[int, int]()

    def is_reached(self, run: ClusterRun, state: str, site: int, content: dict[str, Any]) -> bool:
        """Return whether what a site says means that the instant has come."""
        if state == "progress":
            self._ops[site] = content["ops"]
            total = sum(len(part.graph) for part in run.plan.parts)
            return self.state == "progress" and sum(self._ops.values()) >= self.share * total
        return state == self.state or state == "done"


def instants(fault: str, count: int = 10) -> list[Any]:
    """Return the parameters of a test: instants that are drawn for a fault. The gate runs the middle one."""
    drawn = sorted(np.random.default_rng(zlib.crc32(fault.encode())).uniform(0, 1, count).round(3).tolist())
    return [pytest.param(at, marks=() if k == count // 2 else pytest.mark.slow) for k, at in enumerate(drawn)]


def run_with(
    client: Any, act: Callable[[], None], drawn: float, out: Path, array: Any = None, target: str = "", **options: Any
) -> tuple[BaseException | None, Any]:
    """Run the program; ``act`` at an instant. Return the error or the result.

    ``array``: the input, if not an array of this process. ``target``: of the output, if not a file.
    """
    instant, acted, following = Instant(drawn), list[bool](), ClusterRun._next

    def heard(run: ClusterRun, connections: Any) -> Any:
        event = following(run, connections)
        if event is not None and not acted and instant.is_reached(run, *event):
            acted.append(True)
            act()
        return event

    def often() -> None:
        from einturnip.cluster import site_task

        site_task.PROGRESS_SECONDS = 0.01

    client.run(often)
    options = {"arena": "1MiB", "out": {"E": target or str(out / "E.npy")}, "spill": str(out)} | options
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(ClusterRun, "_next", heard))
        try:
            found = et.compile(TEXT)(A=matrix() if array is None else array, client=client, **options)
        except (EinturnipError, KeyboardInterrupt) as error:
            assert acted
            return error, None
    assert acted
    return None, found


def require_nothing_left(client: Any, folder: Path, *files: str) -> None:
    """Check that no file, task, or memory of a run is left.

    Workers end their tasks when they hear of the end; the cluster is asked until they have.
    """
    assert sorted(os.listdir(folder)) == sorted(files)

    def runs(dask_worker: Any) -> int:
        from einturnip.sites.wires.dask import WorkerInboxes

        return len(WorkerInboxes.of(dask_worker).runs) + len(dask_worker.state.executing)

    def tasks(dask_scheduler: Any) -> list[str]:
        return [str(key) for key in dask_scheduler.tasks]

    while any(client.run(runs, on_error="ignore").values()) or client.run_on_scheduler(tasks):
        pass  # the test's time limit ends this


def require_right(found: Any) -> None:
    """Check the numbers of a run."""
    np.testing.assert_array_equal(np.asarray(found["E"]), result())
