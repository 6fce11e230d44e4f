"""The runs in progress in this process: a fork must not copy them, and some plans wait for their end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from einturnip.core import process_resources
from einturnip.core.errors import CapacityError, RunError
from einturnip.devices.host import arenas_nbytes

T = TypeVar("T")

_active: dict[int, int] = {}  # the thread of each run, by the identity of its context; single calls are atomic
_begun = 0  # number of runs started so far
_broken = False
_alone: int | None = None  # the thread that waits for all other runs, or plans while there are none
_changed = threading.Condition(threading.Lock())
_turn = threading.Lock()


class run_in_progress:
    """Context of a run. A child forked during a run inherits locks that none of its threads will release."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin a run; wait while another thread must be alone.

        Raises:
            RunError: this process was forked during a run of its parent.
        """
        global _begun
        if _broken:
            raise RunError(
                "this process was forked while einturnip was running in its parent, so einturnip cannot run in it. "
                "help: fork before the run, or start processes with multiprocessing's 'spawn' or 'forkserver'"
            )
        _active[id(self)] = threading.get_ident()
        _begun += 1
        if _alone is not None:
            try:
                self._wait_for_turn()
            except BaseException:
                _active.pop(id(self), None)
                raise

    def __exit__(self, *_: object) -> None:
        """End the run, and wake threads that wait for it."""
        _active.pop(id(self), None)
        if _alone is not None:
            with _changed:
                _changed.notify_all()

    def __del__(self) -> None:
        """End a run that an interrupt stopped before its block began, so that ``__exit__`` is not called."""
        _active.pop(id(self), None)

    def _wait_for_turn(self) -> None:
        """Let a thread that needs exclusive use go first; nested runs proceed, to avoid a deadlock."""
        thread = threading.get_ident()
        if _alone == thread or _threads().count(thread) > 1:
            return
        with _changed:
            _active.pop(id(self), None)
            _changed.notify_all()
            while _alone is not None:
                _changed.wait()
            _active[id(self)] = thread


def _threads() -> list[int]:
    """The thread of each run."""
    return list(_active.values())


@contextmanager
def exclusive_run() -> Iterator[None]:
    """Context in which no other thread runs: waits for the runs in progress, and new runs wait."""
    global _alone
    with _turn:
        _alone = threading.get_ident()
        try:
            with _changed:
                while _active:
                    _changed.wait(1.0)  # a run that an interrupt stopped ends without a notice
            yield
        finally:
            _alone = None
            with _changed:
                _changed.notify_all()


def undisturbed(call: Callable[[], T], trial: Callable[[], object] | None = None) -> T:
    """Call a function that plans in a given memory, regardless of memory that other threads use meanwhile.

    Only the memory of the whole process can be measured. The arenas of other runs are excluded. A call that is refused,
    although it would fit in an otherwise idle process, is repeated after all other runs have ended. A thread within a
    run, in a callback, does not wait: two such threads would wait for each other. ``trial``: only plans the call; if
    that is refused without other runs, waiting is useless.

    Raises:
        CapacityError: it does not fit.
    """
    began, within, disturbed = _begun, threading.get_ident() in _threads(), bool(_active)
    try:
        with process_resources.exclude_foreign_memory(arenas_nbytes, fixed_minimum=disturbed):
            return call()
    except CapacityError:
        if within or not (disturbed or _begun != began):
            raise
    if trial is not None:
        with process_resources.constant():
            trial()
    with exclusive_run():
        return call()


def _after_fork() -> None:
    global _broken, _alone, _changed, _turn
    _broken = _broken or bool(_active)
    # Threads that held these locks stayed in the parent.
    _alone, _changed, _turn = None, threading.Condition(threading.Lock()), threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
