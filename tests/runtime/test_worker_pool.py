"""A worker pool serves the next run with as many threads in the same process, if no run failed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import einturnip as et
from einturnip.memgraph.types import Lane
from einturnip.runtime.host import run_resources as crews
from einturnip.runtime.host.run_resources import WorkerPool


@pytest.fixture(autouse=True)
def _none_waiting() -> Iterator[None]:
    crews._idle.clear()
    yield
    for _, pool in list(crews._idle.values()):
        pool.close()
    crews._idle.clear()


def test_a_crew_waits_and_is_taken_once() -> None:
    threads = {lane: 1 for lane in Lane}
    first, second = WorkerPool.acquire(threads), WorkerPool.acquire(threads)
    assert first is not second
    first.release()
    second.release()  # one waits, the other ends
    assert WorkerPool.acquire(threads) is first
    assert WorkerPool.acquire({lane: 2 for lane in Lane}) is not first
    first.release()


def test_runs_of_a_program_share_threads_and_a_forked_process_has_its_own() -> None:
    program = et.compile("input x : f64[n, m]\ny[i] = sum[j] exp(x[i,j])\noutput y\n")
    x = np.zeros((1500, 1500))
    program(x=x)
    ((_, pool),) = crews._idle.values()
    assert (program(x=x)["y"] == 1500).all() and [c for _, c in crews._idle.values()] == [pool]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if (program(x=x)["y"] == 1500).all() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
