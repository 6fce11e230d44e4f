"""The cluster that ``--at`` names, where a missing package is an error for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from einturnip.cluster.transport import Cluster
from einturnip.core.errors import DeviceError


@contextmanager
def named_cluster(at: str, insecure: bool) -> Iterator[Cluster]:
    """Context with the cluster that ``--at`` names.

    Raises:
        DeviceError: Dask is not installed, or there is no such cluster. BindError: ``at`` names none.
    """
    try:
        from einturnip.cluster.dask import DaskCluster
        from einturnip.sites.wires.dask_cluster import cluster_at
    except ImportError as error:
        raise DeviceError(f"--at needs Dask ({error}). help: pip install 'einturnip[dask]'") from error
    with cluster_at(at, insecure) as client:
        yield DaskCluster(client)
