"""BLAS gets all workers on an idle machine only."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from einturnip.runtime.host import blas_threads
from einturnip.runtime.host.blas_threads import BlasThreadChoice, other_running_threads
from tests.devices.blas import blas_thread_count


def test_threads_follow_what_the_machine_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [3]

    def look() -> int:
        looks.append(clock.elapsed)
        return running[0]

    monkeypatch.setattr(blas_threads, "other_running_threads", look)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    clock, looks = SimpleNamespace(elapsed=0.0, ran=0.0), list[float]()
    clock.perf_counter, clock.thread_time = lambda: clock.elapsed, lambda: clock.ran
    monkeypatch.setattr(blas_threads, "time", clock)
    share, before = BlasThreadChoice(2, 1.0), blas_thread_count()
    with share.step():
        assert blas_thread_count() == 1
    running[0] = 2
    clock.elapsed = 0.5 * blas_threads.LOOK_SECONDS
    with share.step():
        assert share.threads == 1, "the load was read a moment ago"
    clock.elapsed = blas_threads.LOOK_SECONDS
    with share.step():
        assert share.threads == 2
    assert looks == [0.0, blas_threads.LOOK_SECONDS]
    with share.step():
        clock.elapsed, clock.ran = 1.0, 0.98
    assert share.threads == 2
    with share.step():
        clock.elapsed = 2.0  # another process held the core
    assert share.threads == 1 and blas_thread_count() == before


def test_short_steps_do_not_look() -> None:
    share = BlasThreadChoice(8, 1e-5)
    with share.step():
        assert share.threads == 1 and blas_thread_count() == 1
    assert other_running_threads() >= 0
