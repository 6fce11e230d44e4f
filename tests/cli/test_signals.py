"""Signals that come while the command line is being imported, raised by an import hook."""

import signal
import subprocess
import sys
import tomllib

import pytest

from tests.robustness.programs import ENVIRONMENT, ROOT

# Raises the signal as a module is looked for, then begins as the console script or ``python -m`` does.
CHILD = """
import os, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Hook())
sys.argv = ["einturnip", "check", "p.ein"]
if {script!r}:
    from importlib import import_module
    module, name = {script!r}.split(":")
    getattr(import_module(module), name)()
else:
    import runpy
    runpy.run_module("einturnip", run_name="__main__")
"""
SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["einturnip"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "module",
    ["einturnip.cli.process", "einturnip.cli.main", "click", "einturnip.cli.check", "numpy", "einturnip.lang.program"],
)
@pytest.mark.parametrize("script", [SCRIPT, ""], ids=["script", "module"])
def test_a_signal_during_imports_ends_the_command_quietly(script, module, number, tmp_path) -> None:
    (tmp_path / "p.ein").write_text("input A : f64[n]\nB[i] = A[i]\noutput B\n")
    code = CHILD.format(module=module, number=int(number), script=script)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (128 + number, "interrupted\n")


BEFORE = """
import sys
before = {*sys.modules}
import einturnip.cli.entry
print(*sorted({*sys.modules} - before))
"""


def test_hardly_anything_is_imported_before_there_are_handlers(tmp_path) -> None:
    """Until then Ctrl-C shows Python's traceback."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    own = {"einturnip", "einturnip.cli", "einturnip.cli.entry", "einturnip.cli.signals"}
    assert own <= {*done.stdout.split()} <= own | {"__future__"}


def test_a_signal_that_was_ignored_from_the_start_stays_so(tmp_path) -> None:
    (tmp_path / "p.ein").write_text("input A : f64[n]\nB[i] = A[i]\noutput B\n")
    code = CHILD.format(module="numpy", number=int(signal.SIGINT), script=SCRIPT)
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + code
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
