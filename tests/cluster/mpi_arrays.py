"""A program for mpiexec whose rank 0 holds inputs and outputs as arrays, which travel by tile."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from einturnip.api.inputs import open_inputs
from einturnip.api.jobs import plan_job
from einturnip.api.run_program import with_arrays
from einturnip.api.session import Session
from einturnip.cluster.at import named_cluster, serve_rank
from einturnip.cluster.mpi_rank import this_rank
from einturnip.cluster.transport import Cluster
from einturnip.compiler import Options, bind
from einturnip.lang import compile_text

STEPS = "input A : f64[n,n]\nstate x : f64[n,n] = 1\ny[i,j] = A[i,k] * x[k,j]\nx[i,j] <- y[i,j] / 8\n"
TEXT = "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"


def main() -> None:
    """Run the program twice in one job, and check its numbers."""
    a, b = np.arange(6300.0).reshape(90, 70) % 7, np.arange(5600.0).reshape(70, 80) % 5
    with named_cluster("mpi", False) as cluster:
        program = compile_text(TEXT)
        for _ in range(2):
            sources = open_inputs(program, {"A": a, "B": b}, Path("."), True)
            graph = bind(program, sources, {})
            targets = with_arrays(graph, {})
            result = targets["C"]
            assert isinstance(result, np.ndarray)
            job = plan_job(graph, sources, targets, Options(arena=40 << 10), cluster)
            report, _ = job.run()
            np.testing.assert_array_equal(result, a @ b)
            moved = [sum(site.received_nbytes.values()) for site in report.sites]
            print(len(report.sites), [site.received_nbytes == site.planned_nbytes for site in report.sites], any(moved))

        steps(cluster)


def steps(cluster: Cluster) -> None:
    """Run steps whose state stays at the ranks, and check it and what rank 0 keeps of it."""
    x = np.ones((60, 60))
    a = np.arange(3600.0).reshape(60, 60) % 3 - 1
    options = Options(arena=40 << 10)
    with Session(compile_text(STEPS), Path("."), {}, options, {"A": a}, cluster=cluster) as session:
        for _ in range(3):
            session.step()
            x = a @ x / 8
            np.testing.assert_array_equal(session.state("x"), x)
        kept = {name for name, *_ in this_rank().blocks}
    print("steps", len(kept) <= 2)


if not serve_rank():
    main()
