"""A program for mpiexec whose rank 1 frees its memory slowly, so that the next run begins before it has."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from weakref import WeakSet

import numpy as np

from einturnip.api.session import Session
from einturnip.cluster import site_task
from einturnip.cluster.at import named_cluster, serve_rank
from einturnip.cluster.cluster_run import ClusterRun
from einturnip.cluster.mpi_rank import this_rank
from einturnip.compiler import Options
from einturnip.lang import compile_text

STEPS = "input A : f64[n,n]\nstate x : f64[n,n] = 1\ny[i,j] = A[i,k] * x[k,j]\nx[i,j] <- y[i,j] / 8\n"
RUNS, SITES = WeakSet[ClusterRun](), WeakSet[site_task._Site]()


def main() -> None:
    """Run steps whose state stays at the ranks, check it, and count the runs that are still in memory."""
    x = np.ones((60, 60))
    a = np.arange(3600.0).reshape(60, 60) % 3 - 1
    with (
        named_cluster("mpi", False) as cluster,
        Session(compile_text(STEPS), Path("."), {}, Options(arena=40 << 10), {"A": a}, cluster=cluster) as session,
    ):
        for _ in range(5):
            session.step()
            x = a @ x / 8
        print("right", np.array_equal(session.state("x"), x))
        gc.collect()
        print("left", len(RUNS), len(SITES))


def _slowly(site: site_task._Site) -> None:
    if this_rank().port.rank == 1:
        time.sleep(0.4)
    CLOSE(site)


def _counted_site(site: site_task._Site, end: site_task.SiteEnd) -> None:
    SITES.add(site)
    INIT(site, end)


CLOSE, INIT = site_task._Site.close, site_task._Site.__init__
site_task._Site.close, site_task._Site.__init__ = _slowly, _counted_site  # type: ignore[method-assign]
RESULTS = ClusterRun.results


def _counted_run(run: ClusterRun, *arguments: object) -> object:
    RUNS.add(run)
    return RESULTS(run, *arguments)  # type: ignore[arg-type]


ClusterRun.results = _counted_run  # type: ignore[assignment, method-assign]
if not serve_rank():
    main()
