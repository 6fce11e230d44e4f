"""Entry to clusters on Dask, where a missing package is an error for the user."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from einturnip.core.errors import DeviceError


def at_cluster(at: str, insecure: bool) -> AbstractContextManager[Any]:
    """Return a context with a client of the cluster that ``--at`` names.

    Raises:
        DeviceError: Dask is not installed, or there is no such cluster. BindError: ``at`` names none.
    """
    try:
        from einturnip.sites.wires.dask_cluster import cluster_at
    except ImportError as error:
        raise DeviceError(f"--at needs Dask ({error}). help: pip install 'einturnip[dask]'") from error
    return cluster_at(at, insecure)
