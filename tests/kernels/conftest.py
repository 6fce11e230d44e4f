"""Fixtures that tests of machine code share."""

from collections.abc import Iterator

import pytest

from einturnip.kernels import select
from einturnip.kernels.llvm import code_cache


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels go to a folder of the tests', and are forgotten after each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    yield
    code_cache.forget()
    select.forget()
