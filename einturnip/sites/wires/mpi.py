"""The wire between the ranks of an MPI job.

One thread of each rank makes all calls of MPI. It waits by polling, because MPI offers no wait for either a message or
a command, and pauses between the polls, because waiting inside MPI would take a core.
A value is received into its place in the arena. Nothing is pickled: a message is four numbers or bytes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from mpi4py import MPI

from einturnip.core.errors import DeviceError, Interrupted
from einturnip.memgraph.views import Array, OpViews
from einturnip.runtime.host.event_loop import OpEnded
from einturnip.sites.part import SitePart
from einturnip.sites.wires.messages import NumberedTransfers
from einturnip.tuning.memory import RECEIVE_WINDOW

BUSY_SECONDS, IDLE_SECONDS = 5e-5, 1e-3
"""Pause between two polls while transfers are under way, and the longest one without any."""


class Tag(IntEnum):
    """The content of a message."""

    CONTROL = 1  # a Control, the number of a run, a number of the plan and a count of bytes
    TEXT = 2  # an encoded message between coordinator and site
    PART = 3  # the encoded part of a site
    VALUE = 4  # a value, from site to site
    TILE = 5  # a tile of an input that the coordinator holds
    STORED = 6  # a tile of an output that the coordinator stores
    PIECE = 7  # a part of a block that a rank keeps, for the coordinator


class Control(IntEnum):
    """The meaning of a control message for the value with its number."""

    NOTICE = 0  # the receiver can fetch it
    GET = 1  # the sender shall send it
    ARRIVED = 2  # the receiver has it
    WANTED = 3  # the coordinator shall send this tile
    OFFER = 4  # the coordinator can fetch this tile
    GIVE = 5  # the site shall send the tile that it has offered
    TAKEN = 6  # the coordinator has stored it


def contiguous(array: Array) -> Array:
    """Return the bytes of an array, which are a copy if the array is not contiguous."""
    flat: Array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat


class MpiPort:
    """A rank's end of its connections to all ranks, itself included.

    ``controls``: by kind, the handler of control messages of the run with the number ``run``, called with the sender's
    rank, a number and a count of bytes; those of earlier runs are dropped. ``data``: by tag, a function of the sender's
    rank that returns the receiver of the bytes that have been announced. ``values``: returns a value that another site
    fetches. The port's thread calls all of them, and they must not wait.
    """

    def __init__(self) -> None:
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise DeviceError("the MPI library does not allow calls from threads. help: unset MPI4PY_RC_THREAD_LEVEL")
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.run = 0
        self.controls: dict[Control, Callable[[int, int, int], None]] = {Control.GET: self._wanted}
        self.data: dict[Tag, Callable[[int], Callable[[Array], None]]] = {}
        self.values: Callable[[int], Array] = _no_value
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._requests: list[Any] = []
        self._ended: list[Callable[[], None]] = []
        self._waiting = deque[tuple[int, int]]()  # values that others have asked for: rank, number
        self._leaving = 0
        self._closing = False
        self._flushed: list[threading.Event] = []
        self._thread = threading.Thread(target=self._run, name="einturnip-mpi", daemon=True)
        self._thread.start()

    def control(self, rank: int, run: int, kind: Control, number: int, nbytes: int = 0) -> None:
        """Send a control message of a run."""
        self.send(rank, Tag.CONTROL, _control(run, kind, number, nbytes))

    def send(self, rank: int, tag: Tag, data: Array, done: Callable[[], None] | None = None) -> None:
        """Send bytes, which must not change before ``done`` is called."""
        self._commands.put(partial(self._send, rank, tag, data, done))

    def fetch(
        self, rank: int, tag: Tag, data: Array, run: int, kind: Control, number: int, done: Callable[[], None]
    ) -> None:
        """Request bytes from another rank and receive them into ``data``.

        A rank answers requests for one tag in their order, and MPI keeps the order of messages between two ranks.
        """

        def begin() -> None:
            self._requests.append(self._comm.Irecv([data, MPI.BYTE], rank, tag))
            self._ended.append(done)
            self._send(rank, Tag.CONTROL, _control(run, kind, number, 0), None)

        self._commands.put(begin)

    def call(self, command: Callable[[], None]) -> None:
        """Call a function in the port's thread, after all commands before it."""
        self._commands.put(command)

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until everything that this rank sends and receives has ended; False if it has not in that time."""
        event = threading.Event()
        self._commands.put(partial(self._flushed.append, event))
        return event.wait(seconds)

    def close(self, seconds: float) -> bool:
        """End the thread; False if transfers, or a call of MPI, have not ended in that time."""
        flushed = self.flush(seconds)
        self._closing = True
        self._thread.join(seconds)
        return flushed and not self._thread.is_alive()

    def abort(self) -> None:
        """End all ranks at once."""
        MPI.COMM_WORLD.Abort(1)

    # -- the port's thread

    def _run(self) -> None:
        pause = BUSY_SECONDS
        try:
            while not self._closing:
                if self._poll():
                    pause = BUSY_SECONDS
                    continue
                if self._flushed and not self._requests and self._commands.empty():
                    while self._flushed:
                        self._flushed.pop().set()
                try:
                    self._commands.get(timeout=pause)()
                    pause = BUSY_SECONDS
                except Empty:
                    pause = BUSY_SECONDS if self._requests else min(2 * pause, IDLE_SECONDS)
        except BaseException as error:
            # Other ranks would wait for this one forever.
            text = f"error: rank {self.rank} on {socket.gethostname()}: {type(error).__name__}: {error}\n"
            os.write(2, text.encode())
            self.abort()

    def _poll(self) -> bool:
        """Take what has arrived and note what has ended; False if nothing has."""
        found, status = False, MPI.Status()
        while (message := self._comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)) is not None:
            found = True
            source, tag, data = (
                status.Get_source(),
                Tag(status.Get_tag()),
                np.empty(status.Get_count(MPI.BYTE), np.uint8),
            )
            if tag == Tag.CONTROL:
                message.Recv([data, MPI.BYTE])
                run, kind, number, nbytes = data.view(np.int64).tolist()
                if run == self.run:
                    self.controls[Control(kind)](source, number, nbytes)
            else:
                self._requests.append(message.Irecv([data, MPI.BYTE]))
                self._ended.append(partial(self.data[tag](source), data))
        for i in sorted(MPI.Request.Testsome(self._requests) or () if self._requests else (), reverse=True):
            found = True
            done = self._ended.pop(i)
            del self._requests[i]
            done()
        return found

    def _send(self, rank: int, tag: Tag, data: Array, done: Callable[[], None] | None) -> None:
        self._requests.append(self._comm.Isend([data, MPI.BYTE], rank, tag))
        self._ended.append(partial(_sent, data, done))

    def _wanted(self, rank: int, number: int, nbytes: int) -> None:
        self._waiting.append((rank, number))
        self._serve()

    def _serve(self) -> None:
        """Send values that others have asked for; copies of parts of views count in the account of memory."""
        while self._waiting and self._leaving < RECEIVE_WINDOW:
            rank, number = self._waiting.popleft()
            self._leaving += 1
            self._send(rank, Tag.VALUE, contiguous(self.values(number)), self._left)

    def _left(self) -> None:
        self._leaving -= 1
        self._serve()


def _control(run: int, kind: Control, number: int, nbytes: int) -> Array:
    return np.array([run, kind, number, nbytes], np.int64).view(np.uint8)


def _sent(data: Array, done: Callable[[], None] | None) -> None:
    """Drop the bytes that have been sent."""
    if done is not None:
        done()


def _no_value(number: int) -> Array:
    raise DeviceError("a value was requested outside a run")


class MpiWire(NumberedTransfers):
    """One site's end of the wire."""

    def __init__(self, port: MpiPort, run: int, part: SitePart, views: OpViews, post: Callable[[Any], None]) -> None:
        super().__init__(part, views, post)
        self._port, self._run = port, run
        self._begun: dict[int, float] | None = {}  # when each fetch that is reported began; None when stopped
        self._arriving = 0
        self._changed = threading.Condition()

    def notify(self, transfer: int, peer: int) -> None:
        """Notify the receiver that a value can be fetched."""
        self._port.control(peer, self._run, Control.NOTICE, self.number[transfer])

    def acknowledge(self, transfer: int, peer: int) -> None:
        """Notify the sender that the value has arrived."""
        self._port.control(peer, self._run, Control.ARRIVED, self.number[transfer])

    def fetch(self, op: int) -> None:
        """Copy a value from its site; posts the end of the op."""
        target = self.target(op)
        place = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        with self._changed:
            begun = self._begun
            if begun is not None:
                begun[op] = time.perf_counter()
                self._arriving += 1
        if begun is None:
            now = time.perf_counter()
            return self.post(OpEnded(op, 0, now, now, Interrupted("interrupted")))

        def done() -> None:
            if place is not target:
                target[...] = place
            self.received[self.peer[op]] += place.nbytes
            with self._changed:
                self._arriving -= 1
                begin = None if self._begun is None else self._begun.pop(op)
                self._changed.notify_all()
            if begin is not None:
                self.post(OpEnded(op, 0, begin, time.perf_counter(), None))

        flat = place.reshape(-1).view(np.uint8)
        self._port.fetch(self.peer[op], Tag.VALUE, flat, self._run, Control.GET, self.number[op], done)

    def stop(self) -> None:
        """Report the transfers that are under way as failed; ``settle`` waits until they have ended."""
        with self._changed:
            begun, self._begun = self._begun, None
        now = time.perf_counter()
        for op, begin in (begun or {}).items():
            self.post(OpEnded(op, 0, begin, now, Interrupted("interrupted")))

    def settle(self) -> None:
        """Wait until no value arrives any more: MPI cannot give up a transfer whose other end has begun it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._arriving)
