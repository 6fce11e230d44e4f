"""The promise of ``memory=``, measured from outside: VmHWM of a child against its VmRSS as a call began."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.robustness.programs import ENVIRONMENT

MIB = 1 << 20
# The child waits at each ``mark`` until its memory was read and its highest mark put back.
CHILD = """
import sys
import numpy as np
def mark():
    print(flush=True)
    sys.stdin.readline()
def numbers(n, seed=0):
    return np.random.default_rng(seed).random((n, n), np.float32)
"""
FIRST = """A = numbers(1500)
import einturnip as et
mark()
et.einsum("ij,jk->ik", A, A, memory="80MiB")"""
LATER = """A = numbers(1500)
import einturnip as et
et.einsum("ij,jk->ik", A[:99, :99], A[:99, :99])
mark()
et.einsum("ij,jk->ik", A, A, memory="80MiB")"""
HELD = """A = numbers(1500)
import einturnip as et
held = [et.einsum("ij,jk->ik", A, A) for _ in range(3)]
del held[0]
mark()
more = et.einsum("ij,kj->ik", A, A, memory="80MiB")"""
LEFT = """A = numbers(1500)
import einturnip as et
p = et.compile("input A : f32[n,n]\\nB[i,j] = A[i,k] * A[k,j]\\nC[i,j] = B[i,k] * A[k,j]\\noutput C")
for _ in range(3):
    p(A=A, arena="64MiB")
mark()
p(A=A, memory="70MiB")"""
SESSION = """import einturnip as et
p = et.compile("state W : f32[n,n]\\ninput X : f32[n,n]\\nW[i,j] <- X[i,k] * W[k,j]")
s = p.session(W=numbers(1000), memory="80MiB")
X, later = numbers(1000, 1), np.ones(20 << 20)
mark()
for _ in range(3):
    s.step(X=X)"""
THREADS = """import threading
A = numbers(1500)
import einturnip as et
et.einsum
mark()
calls = [lambda s=s: et.einsum(s, A, A, memory="80MiB") for s in ("ij,jk->ik", "ij,kj->ik")]
threads = [threading.Thread(target=call) for call in calls]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()"""
CASES = {
    "first use": (FIRST, 80),  # which loads einturnip's modules
    "later call": (LATER, 80),
    "results held": (HELD, 80),
    "memory that other calls left": (LEFT, 70),
    "session": (SESSION, 80),
    "two threads": (THREADS, 160),
}


def status(pid: int, field: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition(field)[2].split()[0]) * 1024


@pytest.mark.parametrize("case", CASES)
def test_a_call_adds_no_more_than_it_may(case: str) -> None:
    script, allowed = CASES[case]
    child = subprocess.Popen(
        [sys.executable, "-c", f"{CHILD}\n{script}\nmark()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )
    with child:
        assert child.stdin is not None and child.stdout is not None
        try:
            assert child.stdout.readline() == "\n"
            Path(f"/proc/{child.pid}/clear_refs").write_text("5")
            before = status(child.pid, "VmRSS:")
            print(file=child.stdin, flush=True)
            assert child.stdout.readline() == "\n"
            added = status(child.pid, "VmHWM:") - before
            print(file=child.stdin, flush=True)
        finally:
            child.stdin.close()
            child.wait()
    assert added <= allowed * MIB, f"added {added / MIB:.1f} MiB of {allowed}"
    assert child.returncode == 0
