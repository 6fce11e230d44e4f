"""A format that an installed package registers, as docs/formats.md shows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from einturnip.cli.main import cli
from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import F64
from einturnip.storage import file_format, open_sink, open_source
from tests.installed import install

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with installed packages: the page's format, and one that fails."""
    (example,) = re.findall(r"```python\n# mrc_format.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (entry,) = re.findall(r'einturnip.formats"\]\n(.*?)\n', PAGE.read_text())
    install(tmp_path, "mrc_format", example, file_format.GROUP, entry.replace('"', ""))
    broken = "raise ImportError('no libbroken.so')\n"
    install(tmp_path, "broken_format", broken, file_format.GROUP, "broken = broken_format:BROKEN")
    monkeypatch.syspath_prepend(tmp_path)
    file_format.find.cache_clear()
    yield tmp_path
    file_format.find.cache_clear()
    for module in ("mrc_format", "broken_format"):
        sys.modules.pop(module, None)


def test_a_program_reads_and_writes_a_registered_format(installed: Path) -> None:
    volume = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    header = bytearray(1024)
    header[:16] = np.array([4, 3, 2, 2], "<i4").tobytes()
    header[208:211] = b"MAP"
    (installed / "x.mrc").write_bytes(bytes(header) + volume.tobytes())
    (installed / "p.ein").write_text("input X : f32[z, y, x]\nY[z, y, x] = X[z, y, x] * 2\noutput Y\n")
    result = CliRunner().invoke(
        cli, ["run", str(installed / "p.ein"), "-i", f"X={installed}/x.mrc", "-o", f"Y={installed}/y.mrc"]
    )
    assert result.exit_code == 0, result.output
    written = (installed / "y.mrc").read_bytes()
    assert len(written) == 1024 + volume.nbytes
    np.testing.assert_array_equal(np.frombuffer(written[1024:], "<f4").reshape(2, 3, 4), 2 * volume)
    source = open_source(str(installed / "y.mrc"), "Y")
    try:
        assert source.shape == (2, 3, 4)
    finally:
        source.close()


def test_errors_of_a_registered_format_reach_the_user(installed: Path) -> None:
    (installed / "x.mrc").write_bytes(b"nothing")
    with pytest.raises(StoreError, match=r"is no \.mrc map"):
        open_source(str(installed / "x.mrc"), "X")
    with pytest.raises(BindError, match=r"has no keys"):
        open_source(f"{installed}/x.mrc::a", "X")
    with pytest.raises(BindError, match=r"not f64\[3\]"):
        open_sink(str(installed / "y.mrc"), "Y", (3,), F64)
    assert not (installed / "y.mrc").exists()


def test_a_registered_format_that_cannot_be_loaded_is_named(installed: Path) -> None:
    with pytest.raises(StoreError, match=r"\.broken files need broken_format:BROKEN.*no libbroken\.so"):
        open_source(str(installed / "x.broken"), "X")


def test_an_unknown_suffix_lists_the_registered_formats_too(installed: Path) -> None:
    with pytest.raises(BindError, match=r"\.npy, .*\.mrc"):
        open_source(str(installed / "x.unknown"), "X")
