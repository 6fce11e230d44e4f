"""The cluster that ``--at`` names, where a missing package is an error for the user."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from einturnip.cluster.transport import Cluster
from einturnip.core import phases
from einturnip.core.errors import DeviceError


@contextmanager
def named_cluster(at: str, insecure: bool) -> Iterator[Cluster]:
    """Context with the cluster that ``--at`` names.

    Raises:
        DeviceError: Dask or MPI is not installed, or there is no such cluster. BindError: ``at`` names none.
    """
    if at == "mpi":
        with _ranks() as cluster:
            yield cluster
        return
    try:
        from einturnip.cluster.dask import DaskCluster
        from einturnip.sites.wires.dask_cluster import cluster_at
    except ImportError as error:
        raise DeviceError(f"--at needs Dask ({error}). help: pip install 'einturnip[dask]'") from error
    phases.enter("starting or finding the workers")
    with cluster_at(at, insecure) as client:
        phases.enter("reading")
        try:
            yield DaskCluster(client)
        finally:
            phases.enter("leaving the workers")


def serve_rank() -> bool:
    """Take part in the run of an MPI job's rank 0 until it has ended; False at rank 0.

    Raises:
        DeviceError: MPI is not installed.
    """
    with _mpi():
        from einturnip.cluster.mpi_rank import serve_rank
    return serve_rank()


def _ranks() -> AbstractContextManager[Cluster]:
    with _mpi():
        from einturnip.cluster.mpi import ranks
    return ranks()


@contextmanager
def _mpi() -> Iterator[None]:
    try:
        yield
    except (ImportError, RuntimeError) as error:  # mpi4py, or the library that it loads
        raise DeviceError(
            f"--at mpi needs MPI on {socket.gethostname()} ({error}). help: pip install 'einturnip[mpi]'; if the "
            "machine has no MPI library of its own, also pip install mpich"
        ) from error
