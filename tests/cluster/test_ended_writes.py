"""Outputs in the calling process when a run ends: no write goes on, and no tile is kept."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from einturnip.cluster import cluster_run
from einturnip.cluster.tensors import CoordinatorSink
from einturnip.core.errors import Interrupted, RunError
from einturnip.ir.dtypes import from_numpy


def test_the_end_waits_for_writes_however_long_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_run, "JOIN_SECONDS", 0.01)
    writes, begun, may_end, order = cluster_run._Writes(), threading.Event(), threading.Event(), list[str]()

    def write() -> None:
        with writes.one():
            begun.set()
            may_end.wait(60)
            order.append("written")

    def end() -> None:
        writes.end()
        order.append("ended")

    threads = [threading.Thread(target=write), threading.Thread(target=end)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.5)
    may_end.set()
    for thread in threads:
        thread.join()
    assert order == ["written", "ended"]
    with pytest.raises(RunError, match="the run is over"), writes.one():
        pass


def test_a_tile_that_nobody_takes_is_no_longer_offered() -> None:
    def offer(number: int) -> None:
        assert list(sink.offered) == [number]
        raise Interrupted("interrupted")

    sink = CoordinatorSink("C", (2,), from_numpy(np.dtype(float)))
    sink.connected(bytes, {((0, 2),): 7})
    object.__setattr__(sink, "offered", {})
    object.__setattr__(sink, "offer", offer)
    with pytest.raises(Interrupted):
        sink.write(((0, 2),), np.zeros(2))
    assert sink.offered == {}
