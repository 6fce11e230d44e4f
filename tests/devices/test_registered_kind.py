"""A kind of device that an installed package registers, as CONTRIBUTING.md shows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import einturnip as et
from einturnip.cli.doctor import _devices
from einturnip.cli.main import cli
from einturnip.core.errors import BindError, DeviceError
from einturnip.devices import kind as kinds
from einturnip.devices.kind import choose
from tests.installed import install
from tests.language.harness import Sentence
from tests.language.test_semantics import SENTENCES

from .test_language import PORTION, run_sentence

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
PRODUCT = "input A : f32[i, k], B : f32[k, j]\nC[i, j] = A[i, k] * B[k, j]\nD[i, j] = C[i, k] * B[k, j]\noutput D\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with installed packages: the page's kind, and one that fails."""
    (example,) = re.findall(r"```python\n# eager_device.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (entry,) = re.findall(r'einturnip.devices"\]\n(.*?)\n', PAGE.read_text())
    install(tmp_path, "eager_device", example, kinds.GROUP, entry.replace('"', ""))
    install(tmp_path, "broken_device", "raise ImportError('no driver')\n", kinds.GROUP, "broken = broken_device:KIND")
    monkeypatch.syspath_prepend(tmp_path)
    kinds.find.cache_clear()
    yield tmp_path
    kinds.find.cache_clear()
    for module in ("eager_device", "broken_device"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize("sentence", SENTENCES[::PORTION], ids=str)
def test_the_language_runs_on_a_registered_kind(sentence: Sentence, installed: Path) -> None:
    run_sentence(sentence, "eager")


def test_a_command_runs_on_a_registered_kind(installed: Path) -> None:
    a, b = (np.random.default_rng(n).integers(-3, 4, (64, 64)).astype(np.float32) for n in (0, 1))
    np.save(installed / "a.npy", a)
    np.save(installed / "b.npy", b)
    (installed / "p.ein").write_text(PRODUCT.replace("D[", "@place(eager:0)\nD[", 1))
    files = ["-i", f"A={installed}/a.npy", "-i", f"B={installed}/b.npy", "-o", f"D={installed}/d.npy"]
    command = ["run", str(installed / "p.ein"), *files, "--device", "eager", "--arena", "40KiB", "--analyze"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert "on eager:0" in result.output and "disk->eager:0" in result.output
    np.testing.assert_array_equal(np.load(installed / "d.npy"), a @ b @ b)


def test_an_error_on_a_registered_kind_is_that_of_the_cpu(installed: Path) -> None:
    program = et.compile("input T : f32[i], K : i64[j]\nY[j] = T[K[j]]\noutput Y\n")
    data = {"T": np.zeros(3, np.float32), "K": np.array([0, 5])}
    messages = []
    for device in ("cpu", "eager"):
        with pytest.raises(et.RunError) as raised:
            program(data=data, device=device)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_values_of_the_option_name_registered_kinds(installed: Path) -> None:
    with pytest.raises(BindError, match="'abacus' is not a device. help: auto, cpu, cuda, sim, .*eager"):
        choose("abacus")
    with pytest.raises(BindError, match="'eager\\+tf32' is not a device"):
        choose("eager+tf32")
    with pytest.raises(BindError, match="at most 1 devices"):
        choose("eager:0,1")
    with pytest.raises(DeviceError, match="devices 'broken' need broken_device:KIND.*no driver"):
        choose("broken")
    with pytest.raises(et.EinturnipError, match="'abacus:0' is no device"):
        et.compile(PRODUCT.replace("D[", "@place(abacus:0)\nD[", 1))
    assert ("broken", "none: " + "devices 'broken' need broken_device:KIND") in [
        (name, text.partition(",")[0]) for name, text in _devices()
    ]
