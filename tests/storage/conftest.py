from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from einturnip.storage.io import unpublished_file
from tests.storage.simulated_cache import SimulatedCache


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a file system whose page cache can be dropped."""
    folder = unpublished_file.default_directory()
    if unpublished_file._is_memory(folder):
        pytest.skip("every temporary directory here is in memory")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield Path(name)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> SimulatedCache:
    """A page cache in place of the system's."""
    return SimulatedCache(monkeypatch)
