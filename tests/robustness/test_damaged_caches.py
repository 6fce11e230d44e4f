"""Damaged, planted or foreign caches on disk have no effect: no crash, no wrong number, no hang."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import einturnip
from tests.robustness.programs import ENVIRONMENT

ROOT = Path(einturnip.__file__).parent
SCRIPT = Path(__file__).with_name("damaged_caches.py")
# Modules that run code, or call functions that the data names, when they read data.
UNSAFE = {
    "eval",
    "exec",
    "pickle",
    "_pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "jsonpickle",
}


def ends(first: int, last: int) -> dict[str, object]:
    """How the cases ended. In memory where there is a folder for that: disks take milliseconds to sync."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        command = [sys.executable, str(SCRIPT), folder, str(first), str(last)]
        done = subprocess.run(
            command, env=ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


pytestmark = pytest.mark.machine_code


def test_damaged_caches_change_no_answer() -> None:
    assert ends(0, 24) == {"right": 24}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_damaged_caches_change_no_answer() -> None:
    assert ends(1000, 2000) == {"right": 1000}


def test_nothing_that_is_read_can_name_code() -> None:
    """No module of the package imports what unpickles, nor evaluates text."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(word in text for word in (*UNSAFE, "allow_pickle")):
            continue
        for node in ast.walk(ast.parse(text)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [(node.module or "").partition(".")[0]]
            elif isinstance(node, ast.Call):
                names = [ast.unparse(node.func)]
            if UNSAFE & set(names):
                found.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}")
    assert found == []
