"""One attempt to run a plan on workers: begins it, watches it, and ends it everywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty
from typing import Any

import numpy as np

from einturnip.caches import Piece
from einturnip.cluster.chunks import chunk_places, kept_grids
from einturnip.cluster.planning import PARTS, SitesPlan
from einturnip.cluster.tensors import AT_COORDINATOR, input_places, output_places, tile_of
from einturnip.cluster.transport import Cluster, SiteConnections
from einturnip.core import errors
from einturnip.core.errors import DeviceError, EinturnipError, Interrupted, RunError, WorkerLost
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import FILES, Lane, OpKind
from einturnip.planner.request import Options
from einturnip.runtime.scheduler.report import Progress
from einturnip.sites.wires.messages import Event
from einturnip.storage.types import Array, Region, Sink, Source, empty
from einturnip.tuning.memory import JOIN_SECONDS, LOST_SECONDS, SCHEDULER_LOST_SECONDS, SENT_NBYTES, TICK_SECONDS


def no_scheduler() -> RunError:
    """Return the error for a scheduler that no longer answers."""
    return RunError("the scheduler of the cluster is gone. Nothing was written. help: start it and run again")


class ClusterRun:
    """One attempt.

    ``is_repeatable``: a site that fails first syncs the files that it has written, and reports its stored tiles.
    """

    def __init__(
        self,
        cluster: Cluster,
        plan: SitesPlan,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: Options,
        is_repeatable: bool,
    ) -> None:
        self.cluster, self.plan, self.sources, self.sinks = cluster, plan, sources, sinks
        graph = plan.planned.graph
        inputs, outputs = input_places(graph, sources), output_places(sinks, plan.written_by_workers(sinks))
        self.settings: dict[str, Any] = {
            "inputs": inputs,
            "outputs": outputs,
            "spill": options.spill,
            "spill_limit": options.spill_limit,
            "reproducible": options.reproducible,
            "compiled": plan.planned.machine.compiled,
            "bounded": options.arena is None,
            "is_repeatable": is_repeatable,
            "read_by_several": plan.read_again,
        }
        addresses = [worker.address for worker in plan.workers]
        self.chunks = chunk_places(plan.parts, graph, sources, addresses, len(plan.planned.memgraph))
        self.kept = kept_grids(plan.parts, graph, plan.kept)
        self.arrays: dict[str, Any] = {}
        self._begun = dict[int, str]()  # by site, the statement of the last kernel that it began
        self._over = set[int]()  # sites that have ended, or are gone
        self._stored = set[int]()  # stores whose tiles are on disk or in this process
        self._writes = _Writes()
        self._total = sum(len(part.graph) for part in plan.parts)
        names = [n.name for n in graph.nodes if isinstance(n, InputNode)]
        self._at_coordinator = {name for name in names if inputs.get(name) == AT_COORDINATOR}

    def results(
        self, progress: Callable[[Progress], None] | None, stop: threading.Event | None
    ) -> list[dict[str, Any]]:
        """Run all sites and return what each of them measured."""
        sites = [worker.address for worker in self.plan.workers]
        connections = self.cluster.begin(sites, self._part, self._tile, self._store, self.plan.site_of)
        try:
            found = self._watch(connections, progress, stop)
            self._keep(connections, stop)
            return found
        except WorkerLost:
            if self.settings["is_repeatable"]:
                self._settle(connections)
            raise
        finally:
            connections.say("stop")
            self._writes.end()
            connections.close()

    def _watch(
        self, connections: SiteConnections, progress: Callable[[Progress], None] | None, stop: threading.Event | None
    ) -> list[dict[str, Any]]:
        """Handle the reports of the sites until all have ended.

        Raises:
            EinturnipError: one has failed or is gone.
        """
        count = len(self.plan.parts)
        joined, ready, done = set[int](), set[int](), dict[int, dict[str, Any]]()
        ops, began, asked = [0] * count, time.monotonic(), 0.0
        while len(done) < count:
            if stop is not None and stop.is_set():
                raise Interrupted("interrupted")
            if not self.cluster.answers():
                raise no_scheduler()
            now = time.monotonic()
            if now - asked > (1 if len(joined) < count else LOST_SECONDS):
                asked = now
                self._require_present(connections, joined, now - began)
            event = self._next(connections)
            if event is None:
                continue
            state, site, content = event
            match state:
                case "joined":
                    joined.add(site)
                case "ready":
                    ready.add(site)
                    if len(ready) == count:
                        connections.say("go")
                case "progress":
                    ops[site] = content["ops"]
                    if content["node"] >= 0:
                        self._begun[site] = self._statement(content["node"])
                    if progress is not None:
                        progress(self._progress(sum(ops), content["seconds"], self._begun.get(site, "")))
                case "done":
                    done[site] = PARTS.from_bytes(content["result"])
                case "failed":
                    raise self._failure(connections, site, content, done)
                case "lost" if site not in done:
                    raise self._lost(site)
        return [done[site] for site in range(count)]

    def _next(self, connections: SiteConnections) -> Event | None:
        """Return the next report of a site; None if none comes within TICK_SECONDS."""
        try:
            state, site, content = connections.events.get(timeout=TICK_SECONDS)
        except Empty:
            return None
        if state in ("done", "failed", "lost"):
            self._over.add(site)
        if state == "failed":
            self._stored |= set(content.get("stored", ()))
        if state == "done":
            part = self.plan.parts[site]
            self._stored |= set(part.number[np.flatnonzero(part.graph.kind == OpKind.STORE)].tolist())
        return state, site, content

    def _settle(self, connections: SiteConnections) -> None:
        """Stop the remaining sites, and wait until each has ended and reported its stored tiles."""
        connections.say("stop")
        until = time.monotonic() + JOIN_SECONDS
        while len(self._over) < len(self.plan.parts) and self.cluster.answers() and time.monotonic() < until:
            self._next(connections)
            self._over |= set(connections.missing())

    def finished(self) -> dict[str, list[Region]]:
        """Return the regions of outputs that need not be computed again."""
        graph, program, found = self.plan.planned.memgraph, self.plan.planned.graph, dict[str, list[Region]]()
        for number in sorted(self._stored):
            tier, region = tile_of(graph, graph[number])
            name = program.outputs[tier - FILES - len(program.nodes)][0]
            if name in self.settings["outputs"] and self.settings["outputs"][name][0] in ("file", "coordinator"):
                found.setdefault(name, []).append(region)
        return found

    def _require_present(self, connections: SiteConnections, joined: set[int], waited: float) -> None:
        for site in connections.missing():
            raise self._lost(site)
        late = [site for site in range(len(self.plan.parts)) if site not in joined]
        if waited > JOIN_SECONDS and late:
            raise DeviceError(
                f"{self.plan.workers[late[0]].name} has not begun within {JOIN_SECONDS} s: it runs other tasks, "
                "or cannot reach this process. help: wait for them, or give the run workers of its own"
            )

    def _lost(self, site: int) -> RunError:
        """Return the error for a lost site. A lost scheduler ends its workers, so it is the error then."""
        until = time.monotonic() + SCHEDULER_LOST_SECONDS
        while time.monotonic() < until:
            if not self.cluster.answers():
                return no_scheduler()
            time.sleep(TICK_SECONDS)
        self._over.add(site)
        begun = f" It had last begun {self._begun[site]}." if site in self._begun else ""
        return WorkerLost(
            f"{self.plan.workers[site].name} is gone: its process ended or its machine does not answer.{begun}"
        )

    def _statement(self, node: int) -> str:
        graph = self.plan.planned.graph
        line = graph.nodes[node].line
        return f"{graph.place(line)}: {graph.statement(line)}"

    def _failure(self, connections: SiteConnections, site: int, content: Any, done: Collection[int]) -> EinturnipError:
        """Return the error for a site's failure. If it failed because it lost another site, that one is named."""
        if content.get("ending"):
            return self._lost(site)
        until, closing = time.monotonic() + LOST_SECONDS, {site, *done}
        while content.get("lost") and time.monotonic() < until:
            if not self.cluster.answers():
                return no_scheduler()
            event = self._next(connections)
            if event is None:
                continue
            state, other, _ = event
            if state == "lost" and other not in closing:
                return self._lost(other)
            if state in ("failed", "done"):
                closing.add(other)
        kind = getattr(errors, content["kind"], None)
        text = f"{self.plan.workers[site].name}: {content['text']}"
        if content.get("lost"):
            return WorkerLost(f"{text}.")
        if not (isinstance(kind, type) and issubclass(kind, EinturnipError)):
            return RunError(f"{text} ({content['kind']})")
        return RunError(text) if kind is errors.OutOfRange else kind(text)

    def _progress(self, done: int, seconds: float, statement: str) -> Progress:
        total = self._total
        flops, nbytes = int(self.plan.planned.prediction.flops), sum(self.plan.planned.prediction.link_bytes.values())
        share = done / max(1, total)
        return Progress(done, total, int(share * flops), flops, int(share * nbytes), nbytes, seconds, statement)

    def _part(self, site: int) -> Iterator[list[Piece]]:
        """Yield the encoded part of a site, in pieces, a batch of SENT_NBYTES after the other."""
        addresses = tuple(worker.address for worker in self.plan.workers)
        own = {
            "inputs": self.settings["inputs"] | self.chunks.inputs[site],
            "outputs": self.settings["outputs"]
            | {name: ("blocks", grid.borders) for name, (grid, _) in self.kept.items()},
            "served": self.chunks.served[site],
            "extra": self.plan.extra[site],
        }
        encoded = PARTS.to_bytes((self.plan.parts[site], self.plan.memories[site], addresses, self.settings | own))
        for batch in batches(encoded, SENT_NBYTES):
            yield batch
            self.plan.forget_pages()

    def _keep(self, connections: SiteConnections, stop: threading.Event | None) -> None:
        """Make Dask arrays of the output blocks that stay on the workers."""
        for name, (grid, site_of) in self.kept.items():
            node = self.plan.planned.graph.nodes[dict(self.plan.planned.graph.outputs)[name]]
            blocks = connections.blocks(name, list(grid.indices()), site_of)
            while not blocks.is_complete(TICK_SECONDS):
                if stop is not None and stop.is_set():
                    raise Interrupted("interrupted")
                for site in connections.missing():
                    raise self._lost(site)
            self.arrays[name] = blocks.array(grid.extents, node.dtype.numpy)

    def _tile(self, number: int) -> Array:
        """Return the tile that an op reads of an input in this process."""
        graph = self.plan.planned.memgraph
        tier, region = tile_of(graph, graph[number])
        name = self.plan.planned.graph.nodes[tier - FILES].name
        if graph[number].kind.lane != Lane.IN or name not in self._at_coordinator:
            raise RunError("this tile is in a file")
        source = self.sources[name]
        out = empty(region, source.dtype.numpy)
        source.read(region, out)
        return out

    def _store(self, number: int, data: Any) -> None:
        """Write the tile that an op stores of an output in this process."""
        graph, program = self.plan.planned.memgraph, self.plan.planned.graph
        tier, region = tile_of(graph, graph[number])
        sink = self.sinks[program.outputs[tier - FILES - len(program.nodes)][0]]
        tile = np.frombuffer(data, np.uint8).view(sink.dtype.numpy).reshape([hi - lo for lo, hi in region])
        with self._writes.one():
            sink.write(region, tile)
            self._stored.add(number)


def batches(pieces: Sequence[Piece], nbytes: int) -> Iterator[list[Piece]]:
    """Yield pieces of bytes in batches of at most ``nbytes``."""
    batch, free = list[Piece](), nbytes
    for piece in pieces:
        at = 0
        while at < len(piece):
            part = memoryview(piece)[at : at + free]
            batch.append(part)
            at, free = at + len(part), free - len(part)
            if not free:
                yield batch
                batch, free = [], nbytes
    if batch:
        yield batch


class _Writes:
    """The writes of outputs in this process; all have ended before the run ends."""

    def __init__(self) -> None:
        self._changed, self._count, self._ended = threading.Condition(), 0, False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Context of one write.

        Raises:
            RunError: the run has ended.
        """
        with self._changed:
            if self._ended:
                raise RunError("the run is over")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Allow no further writes, and wait for those in progress.

        They would change arrays of the caller after the run.
        """
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._count)
