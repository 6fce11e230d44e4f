"""Runs of the command line as ranks of an MPI job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "einturnip", "run"]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
"""That of the package ``mpich``, which the extra ``dev`` installs."""


def command(ranks: int, *arguments: str) -> list[str]:
    """Return the command of a job with some ranks; one rank needs no ``mpiexec``."""
    start = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    return [*start, *COMMAND, *arguments, "--at", "mpi"]


def run(folder: Path, ranks: int, *arguments: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """Run a job and return what it printed."""
    return subprocess.run(
        command(ranks, *arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
