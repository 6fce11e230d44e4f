"""One cluster of four worker processes for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

# The extra ``dev`` installs it.
collect_ignore_glob = [] if find_spec("distributed") else ["test_*.py"]


@pytest.fixture(scope="module")  # its threads allocate, which other tests count
def client() -> Iterator[Any]:
    from einturnip.sites.wires.dask_cluster import cluster_at

    with cluster_at("local:4", False) as found:
        yield found
