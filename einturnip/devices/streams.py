"""Streams and marks on a virtual clock: work is done, by the host, when its time there has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from einturnip.core.errors import InternalError

Work: TypeAlias = Callable[[], None]
Pace: TypeAlias = Callable[[float], float]


class VirtualEvent:
    """A mark. ``time``: when it was reached; ``waiters``: the streams that stand before it."""

    __slots__ = ("error", "time", "waiters")

    def __init__(self) -> None:
        self.time: float | None = None
        self.error: BaseException | None = None
        self.waiters: list[int] = []


class VirtualStreams:
    """Any number of streams. ``pace`` gives the seconds that work takes, from those that were planned.

    Work takes effect at its end: what overwrites bytes too early, or reads them too late, meets the wrong ones.
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
        """Have the stream do some work."""
        self._queues.setdefault(stream, deque()).append((work, seconds))
        self._go_on(stream)

    def record(self, stream: int, event: VirtualEvent) -> None:
        """Have the stream reach the event behind all it was given so far."""
        self._queues.setdefault(stream, deque()).append((event, True))
        self._go_on(stream)

    def wait(self, stream: int, event: VirtualEvent) -> None:
        """Have the stream stand still until the event was reached."""
        self._queues.setdefault(stream, deque()).append((event, False))
        self._go_on(stream)

    def advance(self) -> None:
        """Go on to the next end of some work, and do it.

        Raises:
            InternalError: every stream stands still for good.
        """
        if not self._running:
            raise InternalError("every stream waits for an event that none will reach")
        self.clock, _, stream, work = heappop(self._running)
        try:
            work()
        except BaseException as error:
            self._errors.setdefault(stream, error)
        self._busy.discard(stream)
        self._go_on(stream)

    def _go_on(self, first: int) -> None:
        """Let a stream, and those that it wakes, come to their next work."""
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
