"""Programs that are small to write and not small to run, and a command line in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}

GEMM = """
input A : f32[n, k]
input B : f32[k, m]
C[i,j] = sum[k] A[i,k] * B[k,j]
output C
"""

SOFTMAX = """
input X : f32[n, m]
E[i,j] = exp(X[i,j] - max[j] X[i,j])
Y[i,j] = E[i,j] / sum[j] E[i,j]
output Y
"""

ATTENTION = """
dim d
input Q : f32[h, s, d]
input K : f32[h, t, d]
input V : f32[h, t, d]
scale = 1 / sqrt(d)
S[h,s,t] = sum[d] Q[h,s,d] * K[h,t,d] * scale
A[h,s,t] = where(t <= s, S[h,s,t], -inf)
P[h,s,t] = exp(A[h,s,t] - max[t] A[h,s,t])
O[h,s,d] = sum[t] P[h,s,t] * V[h,t,d] / sum[t] P[h,s,t]
output O
"""

PIPELINE = """
input X : f32[n, m]
input b : f32[m]
A[i,j] = X[i,j] * 2 + b[j]
B[i,j] = max(A[i,j], 0)
C[j,i] = B[i,j] - X[i,j]
z[j] = sum[i] B[i,j]
output C, z
"""

SCALAR = """
input a : f64 = 3
b = a * 2 + 1
output b
"""

# B is made once and read again for every row of C, so it is spilled where the arena is short.
SPILLING = """
input X : f32[n, n]
B[i,j] = exp(X[j,i])
s[j] = sum[i] B[i,j]
C[i,j] = sum[k] B[i,k] * B[k,j] / s[j]
output C
"""


def command(*arguments: Any, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """``einturnip ARGUMENTS`` in a process of its own."""
    return start([sys.executable, "-m", "einturnip", *map(str, arguments)], cwd, **options)


def start(line: list[str], cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """A process that has pipes for its output, and takes signals."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    # Who runs the tests in the background of a shell, or by nohup, has them ignore signals; a child would inherit that.
    pipes.setdefault("preexec_fn", _heeds_signals)
    return subprocess.Popen(line, cwd=cwd, env=ENVIRONMENT, text=True, **pipes)


def _heeds_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def finished(*arguments: Any, cwd: Path, **options: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command line that ends by itself."""
    process = command(*arguments, cwd=cwd, **options)
    out, err = process.communicate()
    return process.returncode, out, err


def opened(pid: int) -> list[str]:
    """The files that a process has open."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(fd))
        except OSError:
            continue  # closed in between
    return found
