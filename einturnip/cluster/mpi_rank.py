"""A rank of an MPI job as a site: its connections, and the loop in which it takes part in runs."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

from einturnip.caches import Piece
from einturnip.cluster.site_task import describe, take_part
from einturnip.core.errors import Interrupted
from einturnip.memgraph.views import OpViews
from einturnip.planner.codec import PlanCodec
from einturnip.sites.part import SitePart
from einturnip.sites.wires.messages import Report, SiteInbox
from einturnip.sites.wires.mpi import Control, MpiPort, MpiWire, Tag, contiguous
from einturnip.storage.types import Array, slices
from einturnip.tuning.memory import END_SECONDS

_TEXTS = PlanCodec(())
Message = dict[str, Any]


class JobRank:
    """This process in an MPI job.

    ``orders``: the coordinator's messages; ``interrupt``: called when it stops a run. At rank 0, ``states``
    receives what sites say in a run, and ``here`` has their descriptions. ``blocks``: of outputs that stay at this
    rank, by the name of an array and a position. At rank 0, ``runs`` is the number of the last run; the others
    receive it with their part.
    """

    def __init__(self) -> None:
        self.here: dict[int, Message] = {}
        self.blocks: dict[tuple[Any, ...], Array] = {}
        self.runs = 0
        self.joined = threading.Condition()
        self._over = False
        self.orders: SimpleQueue[Message] = SimpleQueue()
        self.interrupt: Callable[[], None] = _nothing
        self.states: Callable[[int, Message], None] = ignored
        self.port = MpiPort()
        self.port.data |= {Tag.TEXT: self._text, Tag.PART: self._part}

    def end(self) -> None:
        """End all ranks, at rank 0; idempotent."""
        if not self._over:
            self._over = True
            for other in range(self.port.size):
                self.say(other, {"do": "end"})
            if not self.port.close(END_SECONDS):
                atexit.register(self.port.abort)

    def say(self, rank: int, message: Message) -> None:
        """Send a message."""
        plain = {k: np.frombuffer(v, np.uint8) if isinstance(v, bytes) else v for k, v in message.items()}
        self.port.send(rank, Tag.TEXT, np.frombuffer(b"".join(_TEXTS.to_bytes(plain)), np.uint8))

    def _text(self, source: int) -> Callable[[Array], None]:
        def arrived(data: Array) -> None:
            message = _TEXTS.from_bytes(data.data)
            if message.get("state") == "here":
                with self.joined:
                    self.here[source] = message
                    self.joined.notify_all()
            elif "state" in message:
                self.states(source, message)
            else:
                if message["do"] == "stop":
                    self.interrupt()
                self.orders.put(message)

        return arrived

    def _part(self, source: int) -> Callable[[Array], None]:
        def arrived(data: Array) -> None:
            number, part = data[:8], data[8:]
            self.port.run = int(number.view(np.int64)[0])
            self.orders.put({"do": "part", "data": [part], "more": False, "run": self.port.run})

        return arrived


def numbered(run: int, part: Iterable[Piece]) -> Array:
    """Return the message with which a site receives its part of a run, from the pieces of the part."""
    return np.frombuffer(b"".join([run.to_bytes(8, sys.byteorder), *part]), np.uint8)


def _nothing() -> None: ...


def ignored(source: int, message: Message) -> None:
    """Ignore what a site says."""


@cache
def this_rank() -> JobRank:
    """Return this process in its MPI job, which joins at the first call."""
    return JobRank()


def serve_rank() -> bool:
    """Take part in the runs of rank 0 until it ends; False at rank 0, which begins them."""
    rank = this_rank()
    if rank.port.rank == 0:
        atexit.register(rank.end)  # also if this process finds an error before it begins a run
        return False
    # A launcher sends signals to all ranks; rank 0 ends the others in order.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    serve(rank)
    if not rank.port.close(END_SECONDS):
        rank.port.abort()
    return True


def serve(rank: JobRank) -> None:
    """Take part in runs as a site until rank 0 ends the job."""
    while (message := rank.orders.get())["do"] != "end":
        match message["do"]:
            case "describe":
                more = {"threads": 1, "limit": 0, "kind": "", "is_coordinator": rank.port.rank == 0}
                rank.say(0, {"state": "here", **describe(), **more})
            case "part":
                _take_part(rank, message)
            case "read":
                part = rank.blocks[tuple(message["key"])][slices(message["within"])]
                rank.port.send(0, Tag.PIECE, contiguous(part))
            case "forget":
                rank.blocks = {key: block for key, block in rank.blocks.items() if key[0] != message["array"]}


def _take_part(rank: JobRank, message: Message) -> None:
    run = message["run"]
    for (name, index), block in take_part(RankEnd(rank, message)).items():
        rank.blocks[f"{name}-{run}", *index] = block
    message.clear()  # the part would stay in memory until the next order


class RankEnd:
    """A rank's connections in one run; implements ``SiteEnd``."""

    def __init__(self, rank: JobRank, first: Message) -> None:
        self._rank, self._port, self._first = rank, rank.port, deque([first])
        self.site, self._run = rank.port.rank, first["run"]
        self.stopped = threading.Event()
        self.on_stop: Callable[[], None] = _nothing
        self._inbox = SiteInbox()
        self._wire: MpiWire | None = None
        # Answers that threads of the run wait for; None is put there when the run is stopped.
        self._tiles = deque[SimpleQueue[Array | None]]()
        self._taken: dict[int, SimpleQueue[Array | None]] = {}
        self._fetched = set[SimpleQueue[Array | None]]()
        self._pieces: dict[int, tuple[Any, ...]] = {}
        self._received = Counter[int]()
        port = rank.port
        port.controls |= {
            Control.NOTICE: lambda source, number, nbytes: self._inbox.noticed(number),
            Control.ARRIVED: lambda source, number, nbytes: self._inbox.acknowledged(number),
            Control.GIVE: self._give,
            Control.TAKEN: lambda source, number, nbytes: self._taken.pop(number).put(np.empty(0, np.uint8)),
        }
        port.data[Tag.TILE] = lambda source: self._tiles.popleft().put
        port.values = self._value
        rank.interrupt = self._interrupted

    def message(self) -> Message:
        """See SiteEnd."""
        found = self._first.popleft() if self._first else self._rank.orders.get()
        if found["do"] == "end":
            self._rank.orders.put(found)  # for ``serve``
        if found["do"] in ("stop", "end"):
            raise Interrupted("interrupted")
        return found

    def say(self, state: str, **content: Any) -> None:
        """See SiteEnd."""
        if state == "done":  # the arena is freed next
            self._port.flush()
        self._rank.say(0, {"state": state, **content})

    def get(self, number: int) -> Any:
        """See SiteEnd."""

        def ask(answer: SimpleQueue[Array | None]) -> None:
            self._tiles.append(answer)
            self._port.control(0, self._run, Control.WANTED, number)

        return self._asked(ask)

    def offer(self, number: int) -> None:
        """See SiteEnd."""
        nbytes = self._inbox.value(number).nbytes

        def ask(answer: SimpleQueue[Array | None]) -> None:
            self._taken[number] = answer
            self._port.control(0, self._run, Control.OFFER, number, nbytes)

        self._asked(ask)

    def connect_sites(self, sites: tuple[str, ...], served: Mapping[int, tuple[Any, ...]]) -> None:
        """See SiteEnd; ranks know each other."""
        self._pieces = dict(served)

    def wire(self, part: SitePart, views: OpViews, post: Callable[[Any], None]) -> MpiWire:
        """See SiteEnd."""
        self._wire = MpiWire(self._port, self._run, part, views, post)
        return self._wire

    def attach(self, post: Callable[[Report], None], value: Callable[[int], Array], numbered: dict[int, int]) -> None:
        """See SiteEnd."""
        self._inbox.attach(post, value, numbered)

    def fetch_piece(self, number: int, sites: Sequence[int], nbytes: int) -> Array:
        """See SiteEnd."""
        (site,) = sites  # a block stays at one rank
        if site == self.site:
            return self._value(number)
        data = np.empty(nbytes, np.uint8)

        def ask(answer: SimpleQueue[Array | None]) -> None:
            self._fetched.add(answer)
            self._port.fetch(site, Tag.VALUE, data, self._run, Control.GET, number, lambda: answer.put(data))

        self._asked(ask)
        self._received[site] += nbytes
        return data

    def received_pieces(self) -> Mapping[int, int]:
        """See SiteEnd."""
        return self._received

    def _value(self, number: int) -> Array:
        """Return a value that this site has offered, or a piece of a block."""
        if number not in self._pieces:
            return self._inbox.value(number)
        key, within, _, _ = self._pieces[number]
        piece: Array = self._rank.blocks[key][within]
        return piece

    def is_ending(self) -> bool:
        """See SiteEnd."""
        return False

    def settle(self) -> None:
        """See SiteEnd."""
        if self._wire is not None:
            self._wire.settle()
        self._rank.say(0, {"state": "settled"})
        while (message := self._rank.orders.get())["do"] != "close":
            if message["do"] == "end":  # another rank does not answer, and all will be ended
                self._rank.orders.put(message)
                return
        self._port.flush()

    def close(self) -> None:
        """See SiteEnd."""
        self._inbox.detach()
        self._rank.interrupt = self.on_stop = _nothing
        self._wire = None  # other ranks may still read pieces here, so the port keeps this object until the next run

    def _asked(self, ask: Callable[[SimpleQueue[Array | None]], None]) -> Array:
        answer: SimpleQueue[Array | None] = SimpleQueue()

        def begin() -> None:  # in the port's thread, as ``_interrupted``
            if self.stopped.is_set():
                answer.put(None)
            else:
                ask(answer)

        self._port.call(begin)
        found = answer.get()
        if found is None:
            raise Interrupted("interrupted")
        return found

    def _give(self, source: int, number: int, nbytes: int) -> None:
        self._port.send(source, Tag.STORED, contiguous(self._inbox.value(number)))

    def _interrupted(self) -> None:
        self.stopped.set()
        self.on_stop()
        for answer in (*self._tiles, *self._taken.values(), *self._fetched):
            answer.put(None)
