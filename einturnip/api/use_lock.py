"""Readers-writer lock for objects that the user's threads share, such as sessions and plans."""

from __future__ import annotations

import os
import threading

from einturnip.core.errors import RunError


class UseLock:
    """Lets threads use an object at the same time (``shared``) or one after the other (``exclusive``).

    A thread that already uses the object would wait for itself, for instance when a ``progress`` callback steps the
    session that calls it. Such a use gets a RunError instead.
    """

    def __init__(self, name: str) -> None:
        """``name``: what users call the object."""
        self._name = name
        self._exclusive = False
        self._reset()
        self.exclusive, self.shared = _Use(self, True), _Use(self, False)

    def acquire(self, exclusive: bool) -> None:
        """Wait until the object may be used.

        Raises:
            RunError: this thread uses it already.
        """
        # A forked child has one thread. The threads that used the object stayed in the parent.
        if self._process != os.getpid():
            self._reset()
        thread = threading.get_ident()
        with self._changed:
            if thread in self._users and (exclusive or self._exclusive):
                raise RunError(
                    f"this thread is using the {self._name} already: a callback or an input of the call that is going "
                    "on asked for it again. help: return from the call first"
                )
            while self._exclusive or (exclusive and self._users):
                self._changed.wait()
            self._users.append(thread)
            self._exclusive = exclusive

    def release(self) -> None:
        """End this thread's latest use."""
        with self._changed:
            self._users.remove(threading.get_ident())
            self._exclusive = False
            self._changed.notify_all()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._users: list[int] = []
        self._exclusive = False


class _Use:
    """Context manager of one kind of use."""

    __slots__ = ("_exclusive", "_lock")

    def __init__(self, lock: UseLock, exclusive: bool) -> None:
        self._lock, self._exclusive = lock, exclusive

    def __enter__(self) -> None:
        self._lock.acquire(self._exclusive)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
