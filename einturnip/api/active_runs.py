"""The runs that are going on in this process: a fork must not copy them, and some plans wait until they have ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from einturnip.core import resident
from einturnip.core.errors import CapacityError, RunError
from einturnip.devices.host import arenas_nbytes

T = TypeVar("T")

_active: list[int] = []  # the thread of each run: adding and taking away are a step each of the interpreter
_begun = 0  # runs that have begun so far
_broken = False
_alone: int | None = None  # the thread that waits for the runs of all others, or plans while there are none
_changed = threading.Condition(threading.Lock())
_turn = threading.Lock()


class run_in_progress:
    """Around a run. A child forked while one is going on inherits locks that no thread of its own will ever free."""

    __slots__ = ()

    def __enter__(self) -> None:
        global _begun
        if _broken:
            raise RunError(
                "this process was forked while einturnip was running in its parent, so einturnip cannot run in it. "
                "help: fork before the run, or start processes with multiprocessing's 'spawn' or 'forkserver'"
            )
        _active.append(threading.get_ident())
        _begun += 1
        if _alone is not None:
            try:
                _wait_for_turn()
            except BaseException:
                _active.remove(threading.get_ident())
                raise

    def __exit__(self, *_: object) -> None:
        _active.remove(threading.get_ident())
        if _alone is not None:
            with _changed:
                _changed.notify_all()


def _wait_for_turn() -> None:
    """Let the thread that needs the process for itself go first; a run within a run goes on, or both would wait."""
    thread = threading.get_ident()
    if _alone == thread or _active.count(thread) > 1:
        return
    with _changed:
        _active.remove(thread)
        _changed.notify_all()
        try:
            while _alone is not None:
                _changed.wait()
        finally:
            _active.append(thread)


@contextmanager
def exclusive_run() -> Iterator[None]:
    """Within, no other thread runs anything: those that do are waited for, and those that begin wait."""
    global _alone
    with _turn:
        _alone = threading.get_ident()
        try:
            with _changed:
                while _active:
                    _changed.wait()
            yield
        finally:
            _alone = None
            with _changed:
                _changed.notify_all()


def undisturbed(call: Callable[[], T], trial: Callable[[], object] | None = None) -> T:
    """What a call gives that plans in a stated memory, whatever other threads take and give back meanwhile.

    Only the memory of the whole process can be measured. The arenas of other runs are left out of it. A call that is
    refused although it would fit in a process that does nothing else is made again once all other runs have ended.
    A thread that is itself within a run, in a callback, does not wait: two of these would wait for each other.

    ``trial``: the call's plan alone; where it is refused although nothing takes memory meanwhile, there is no use in
    waiting.

    Raises:
        CapacityError: it does not fit.
    """
    began, within, disturbed = _begun, threading.get_ident() in _active, bool(_active)
    try:
        with resident.exclude_foreign_memory(arenas_nbytes, fixed_minimum=disturbed):
            return call()
    except CapacityError:
        if within or not (disturbed or _begun != began):
            raise
    if trial is not None:
        with resident.constant():
            trial()
    with exclusive_run():
        return call()


def _after_fork() -> None:
    global _broken, _alone, _changed, _turn
    _broken = _broken or bool(_active)
    # Threads that held these stayed in the parent.
    _alone, _changed, _turn = None, threading.Condition(threading.Lock()), threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
