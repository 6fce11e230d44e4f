from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from einturnip.stores import temporary
from tests.stores.simulated_cache import SimulatedCache


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a file system whose page cache can be dropped."""
    folder = temporary.default_directory()
    if temporary._is_memory(folder):
        pytest.skip("every temporary directory here is in memory")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield Path(name)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> SimulatedCache:
    """A page cache in place of the system's."""
    return SimulatedCache(monkeypatch)
