"""Streams and events on a virtual clock, for simulated devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from einturnip.core.errors import InternalError

Work: TypeAlias = Callable[[], None]
Pace: TypeAlias = Callable[[float], float]


class VirtualEvent:
    """A mark. ``time``: when it was reached, None before; ``waiters``: streams that wait for it."""

    __slots__ = ("error", "time", "waiters")

    def __init__(self) -> None:
        self.time: float | None = None
        self.error: BaseException | None = None
        self.waiters: list[int] = []


class VirtualStreams:
    """Any number of streams with one clock.

    ``pace``: returns the seconds that work takes from the planned seconds.

    Work takes effect at its end on the clock, so a plan that overwrites bytes too early gives a wrong result.
    """

    def __init__(self, pace: Pace) -> None:
        self.clock = 0.0
        self._pace = pace
        self._queues: dict[int, deque[tuple[Work, float] | tuple[VirtualEvent, bool]]] = {}
        self._busy: set[int] = set()
        self._errors: dict[int, BaseException] = {}
        self._running: list[tuple[float, int, int, Work]] = []
        self._n = 0

    def submit(self, stream: int, work: Work, seconds: float) -> None:
        """Queue work on the stream."""
        self._queues.setdefault(stream, deque()).append((work, seconds))
        self._start_next(stream)

    def record(self, stream: int, event: VirtualEvent) -> None:
        """Record the event after all work queued on the stream so far."""
        self._queues.setdefault(stream, deque()).append((event, True))
        self._start_next(stream)

    def wait(self, stream: int, event: VirtualEvent) -> None:
        """Make the stream wait until the event is reached."""
        self._queues.setdefault(stream, deque()).append((event, False))
        self._start_next(stream)

    def advance(self) -> None:
        """Advance the clock to the next end of work, and do that work.

        Raises:
            InternalError: all streams wait for events that will not be reached.
        """
        if not self._running:
            raise InternalError("every stream waits for an event that will not be reached")
        self.clock, _, stream, work = heappop(self._running)
        try:
            work()
        except BaseException as error:
            self._errors.setdefault(stream, error)
        self._busy.discard(stream)
        self._start_next(stream)

    def _start_next(self, first: int) -> None:
        """Start the next work of a stream, and of the streams that events of it wake."""
        awake = [first]
        while awake:
            stream = awake.pop()
            queue = self._queues.get(stream)
            while queue and stream not in self._busy:
                what, detail = queue[0]
                if not isinstance(what, VirtualEvent):
                    self._n += 1
                    self._busy.add(stream)
                    heappush(self._running, (self.clock + self._pace(float(detail)), self._n, stream, what))
                elif detail:
                    what.time, what.error = self.clock, self._errors.pop(stream, None)
                    awake += what.waiters
                    what.waiters = []
                elif what.time is None:
                    what.waiters.append(stream)
                    break
                queue.popleft()
