"""``memory=`` is for each call: memory of other threads is not counted, or is waited for."""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

import einturnip as et
from einturnip.api import active_runs, plan_cache
from einturnip.core import process_resources
from einturnip.devices.host import HostArena
from einturnip.runtime.scheduler.report import Progress

PRODUCT = "input A : f64[n, n]\nC[i,j] = A[i,k] * A[k,j]\ns = sum[i,j] C[i,j]\noutput s"
MIB = 1 << 20


class Disturbed:
    """An array that has something done when it is asked for its numbers: after a call has looked at the memory."""

    def __init__(self, array, then) -> None:
        self.array, self.then = array, then

    def __dlpack__(self, **_: object) -> object:
        then, self.then = self.then, lambda: None
        then()
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Held:
    """A run in another thread that stays in its ``progress`` callback until the test releases it."""

    def __init__(self, n: int, arena: str, then=lambda: None) -> None:
        self.reached, self.go, self.results = threading.Event(), threading.Event(), []
        self._run = lambda: self.results.append(
            et.compile(PRODUCT)(A=np.ones((n, n)), arena=arena, progress=self._progress)["s"]
        )
        self._then, self._thread = then, threading.Thread(target=self._start)

    def _start(self) -> None:
        try:
            self._run()
        finally:
            self.reached.set()

    def _progress(self, told: Progress) -> None:
        if told.done_ops == told.total_ops and not self.reached.is_set():
            self._then()
            self.reached.set()
            self.go.wait()

    def begin(self) -> None:
        self._thread.start()
        self.reached.wait()

    def end(self) -> None:
        self.go.set()
        self._thread.join()


@contextmanager
def held(*arguments, **more):
    run = Held(*arguments, **more)
    try:
        yield run
    finally:
        run.end()


@pytest.fixture
def small(monkeypatch):
    """A product that fits in 200 MiB, of which modules were loaded already, and takes no plan from disk or before."""
    monkeypatch.setenv("EINTURNIP_PLANS", "off")
    a = np.ones((40, 30))
    et.einsum("ij,kj->ik", a, a, memory="200MiB")
    plan_cache.forget()
    gc.collect()  # what tracebacks of other tests hold must not be given back meanwhile
    return a


def test_the_arena_of_another_run_is_not_counted(small) -> None:
    arena = HostArena(400 * MIB)
    with held(10, "1MiB", lambda: arena.view(0, arena.nbytes).fill(1)) as run:
        found = et.einsum("ij,kj->ik", Disturbed(small, run.begin), small, memory="200MiB")
        assert (found == 30).all() and not run.results
    assert run.results == [1000.0]
    arena.close()


def test_what_another_run_takes_otherwise_is_waited_for(small, monkeypatch) -> None:
    taken, waited = [], []
    alone = active_runs.exclusive_run

    def wait():
        waited.append(True)
        run.go.set()
        return alone()

    monkeypatch.setattr(active_runs, "exclusive_run", wait)
    with held(10, "1MiB", lambda: taken.append(np.ones(400 * MIB, np.uint8))) as run:
        found = et.einsum("ij,kj->ik", Disturbed(small, run.begin), small, memory="200MiB")
    assert (found == 30).all() and waited and run.results == [1000.0]


def test_what_never_fits_is_refused_at_once(small, monkeypatch) -> None:
    monkeypatch.setattr(active_runs, "exclusive_run", lambda: pytest.fail("waited"))
    with held(10, "1MiB") as run:
        for budget in ("1MiB", 20000):
            with pytest.raises(et.CapacityError):
                et.einsum("ij,kj->ik", Disturbed(small, run.begin if budget == "1MiB" else print), small, memory=budget)
        assert not run.results


def test_a_call_from_a_callback_waits_for_nobody(small, monkeypatch) -> None:
    monkeypatch.setattr(active_runs, "exclusive_run", lambda: pytest.fail("waited"))
    refused = []

    def within(_: object) -> None:
        keep = []
        with pytest.raises(et.CapacityError):
            et.einsum(
                "ij,kj->ik", Disturbed(small, lambda: keep.append(np.ones(400 * MIB, np.uint8))), small, memory="200MiB"
            )
        refused.append(True)

    assert et.compile(PRODUCT)(A=np.ones((10, 10)), arena="1MiB", progress=within)["s"] == 1000 and refused


def test_runs_that_begin_wait_for_who_is_alone() -> None:
    order = []

    def other() -> None:
        order.append("began")
        with active_runs.run_in_progress():
            order.append("ran")

    with active_runs.exclusive_run():
        thread = threading.Thread(target=other)
        thread.start()
        with active_runs.run_in_progress():
            order.append("alone")
        assert "ran" not in order
    thread.join()
    assert order[-1] == "ran"
    assert not active_runs._active


def test_a_session_in_a_stated_memory_waits_too(small, monkeypatch) -> None:
    taken = []
    alone = active_runs.exclusive_run

    def wait():
        run.go.set()
        return alone()

    monkeypatch.setattr(active_runs, "exclusive_run", wait)
    text = "state k : f64 = 0\ninput x : f64[n]\nk <- k + sum[i] x[i]\noutput k"
    with (
        held(10, "1MiB", lambda: taken.append(np.ones(400 * MIB, np.uint8))) as run,
        et.compile(text).session(memory="200MiB") as session,
    ):
        plan = session._held._planned

        def disturbed(*arguments):
            if not run.reached.is_set():
                run.begin()
            return plan(*arguments)

        monkeypatch.setattr(session._held, "_planned", disturbed)
        session.step(x=np.ones(5))
        assert session.state("k") == 5 and session.steps == 1 and run.go.is_set()
    assert run.results == [1000.0]


def test_what_the_caller_takes_after_making_a_session_is_the_callers() -> None:
    text = "state k : f64 = 0\ninput x : f64[n]\nk <- k + sum[i] x[i]\noutput k"
    with et.compile(text).session(memory="100MiB") as session:
        x = np.ones(30 * MIB)
        session.step(x=x)
        assert session.state("k") == x.size


def test_many_threads_with_little_to_do_are_never_refused(small) -> None:
    def call(n: int) -> bool:
        a = np.ones((20 + n % 16, 30))
        return bool((et.einsum("ij,kj->ik", a, a, memory="200MiB") == 30).all())

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, range(48)))


def test_modules_that_threads_load_together_are_counted_once(monkeypatch) -> None:
    monkeypatch.setattr(process_resources, "_loaded", 0)
    taken = []

    def load() -> None:
        with process_resources.loading():
            taken.append(np.ones(64 * MIB, np.uint8))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process_resources._loaded < 300 * MIB


def test_a_child_of_who_is_alone_runs() -> None:
    with active_runs.exclusive_run():
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with active_runs.run_in_progress():
                    status = 0
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
