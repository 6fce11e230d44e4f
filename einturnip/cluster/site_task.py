"""The task of one site: runs its part within the memory of its process."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from einturnip.cluster.chunks import BlockSink, ChunkPieces, input_tiers, pieces_of
from einturnip.cluster.planning import PARTS, THREADS, in_transit_nbytes
from einturnip.cluster.tensors import (
    CoordinatorSink,
    CoordinatorTensor,
    Place,
    open_place,
    open_sink_place,
    tile_numbers,
)
from einturnip.cluster.transport import SiteEnd, SiteWire
from einturnip.cluster.workers import versions
from einturnip.core.errors import CapacityError, EinturnipError, Interrupted, StoreError
from einturnip.core.process_resources import available_memory, peak_resident_nbytes, resident_nbytes, trim_heap
from einturnip.core.units import MIB, format_size
from einturnip.devices.host import blas_threads
from einturnip.devices.stored import machine_here
from einturnip.eingraph.types import InputNode
from einturnip.memgraph.types import OpKind, output_tier
from einturnip.planner.budget import excess_nbytes
from einturnip.planner.predict import slots
from einturnip.runtime.host.compilation import compile_ahead, compile_all
from einturnip.runtime.host.executor import OpExecutor
from einturnip.runtime.host.run_resources import RunResources
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.sites.part import SitePart
from einturnip.sites.process_run import SiteEngine, SiteSchedule, run_part
from einturnip.sites.wires.messages import PeerLost, sent_ops
from einturnip.storage.chunks.chunk_grid import ChunkGrid, Index
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.generated import SummarySink
from einturnip.storage.types import Array, Sink, Source
from einturnip.tuning.memory import PROGRESS_SECONDS


def describe() -> dict[str, Any]:
    """Return what a process reports about itself, with this module loaded."""
    trim_heap()
    return {
        "versions": versions(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "resident": resident_nbytes(),
        "available": available_memory(),
    }


def take_part(end: SiteEnd) -> dict[tuple[str, Index], Array]:
    """Take part in a run; errors go to its coordinator. Returns the blocks of outputs that stay here."""
    site = None
    try:
        site = _Site(end)
        result, blocks = site.run()
        end.say("done", result=b"".join(PARTS.to_bytes(result)))
        return blocks
    except BaseException as error:
        if site is not None and site.settings["is_repeatable"]:
            site.close()  # the next attempt is planned for the memory that is free then
        try:
            _report_failure(end, error, () if site is None else site.stored)
        finally:
            end.settle()
        return {}
    finally:
        if site is not None:
            site.close()
        end.close()


def _report_failure(end: SiteEnd, error: BaseException, stored: tuple[int, ...]) -> None:
    """Tell the coordinator why this site has failed.

    If the report cannot be sent, because a text in it cannot be encoded or for another reason, a shorter one in ASCII
    says so. Errors of that one are the caller's, whose engine logs them and closes the connection.
    """
    try:
        content = {"kind": type(error).__name__, "text": str(error), "lost": isinstance(error, PeerLost)}
        end.say("failed", **content, ending=end.is_ending(), stored=stored)
    except Interrupted:  # nobody is there to hear it
        return
    except Exception as failure:
        try:
            text = str(error)
        except Exception:
            text = "it has no text"
        text += f" (the full report of this error failed: {type(failure).__name__})"
        end.say("failed", kind=_ascii(type(error).__name__), text=_ascii(text))


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


class _Site:
    """One site in one run: its part, the open files and the resources, which ``close`` frees."""

    def __init__(self, end: SiteEnd) -> None:
        self.end = end
        self.part: SitePart
        pieces = list[Any]()
        while (message := end.message())["more"]:
            pieces += message["data"]
            end.say("received")
        data = b"".join([*pieces, *message["data"]])  # a copy, whose arrays are aligned
        del pieces, message
        self.part, self.memory, addresses, self.settings = PARTS.from_bytes(data)
        self.graph = self.part.graph.taskgraph.decomposition.graph
        self.offered: dict[int, Array] = {}
        self.open: list[Source | Sink | RunResources] = []
        self.stored: tuple[int, ...] = ()  # of a failed run that may be repeated: the stores whose tiles are durable
        end.connect_sites(addresses, pieces_of(self.settings["served"]))

    def run(self) -> tuple[dict[str, Any], dict[tuple[str, Index], Array]]:
        """Run the part; return its measurements, and the blocks of outputs that stay here."""
        graph, settings = self.part.graph, self.settings
        sources, sinks = self._sources(), self._sinks()
        host = RunResources(graph, slots(THREADS), policy("fixed"), settings["spill"], settings["spill_limit"])
        self.open.append(host)
        self._compile()
        self._require_memory(sources)
        nodes = self.graph.nodes
        by_node = [sources[n.name] if isinstance(n, InputNode) else None for n in nodes]
        executor = OpExecutor(graph, host.arena, by_node, [*sinks.values()], host.spill)
        executor.kept = frozenset(settings["read_by_several"])
        queue: SimpleQueue[Any] = SimpleQueue()
        wire = self.end.wire(self.part, executor.views, queue.put)
        schedule = SiteSchedule(self.part, host.lanes, wire)
        engine = SiteEngine(executor, schedule, host.pool, wire, queue)
        self.end.on_stop = wire.stop

        def value(number: int) -> Array:
            found = self.offered.get(number)
            return wire.value(number) if found is None else found

        self.end.say("ready", resident=resident_nbytes())
        self.end.message()
        self.end.attach(queue.put, value, sent_ops(self.part))
        try:
            with blas_threads(THREADS):
                trace = run_part(executor, schedule, engine, self._tick(schedule), self.end.stopped)
        except EinturnipError:
            with suppress(StoreError):
                for sink in sinks.values() if settings["is_repeatable"] else ():
                    sink.commit()
                stores = [op for op in engine.written if graph.kind[op] == OpKind.STORE]
                self.stored = tuple([int(self.part.number[op]) for op in stores])
            raise
        require_unchanged_inputs(sources.values(), sinks.values())
        for sink in sinks.values():
            sink.commit()
        summaries = {name: s.parts() for name, s in sinks.items() if isinstance(s, SummarySink)}
        kept = [sink.blocks for sink in sinks.values() if isinstance(sink, BlockSink)]
        blocks = {key: block for of_sink in kept for key, block in of_sink.items()}
        return self._result(trace, executor, engine, wire) | {"summaries": summaries}, blocks

    def close(self) -> None:
        """Free the memory of the run, and close its files."""
        while self.open:
            self.open.pop().close()

    def _sources(self) -> dict[str, Source]:
        tiles, tiers, found = tile_numbers(self.part), input_tiers(self.graph), dict[str, Source]()
        for node in self.graph.nodes:
            if isinstance(node, InputNode):
                place = self.settings["inputs"][node.name]
                source = found[node.name] = self._source(place, node)
                self.open.append(source)
                if isinstance(source, CoordinatorTensor):
                    source.connected(self.end.get, tiles.get(tiers[node.name], {}))
        return found

    def _source(self, place: Place, node: InputNode) -> Source:
        match place:
            case ("chunks", borders, numbers):
                grid = ChunkGrid(borders)
                return ChunkPieces(node.name, node.shape, node.dtype, grid, numbers, self.end.fetch_piece)
            case ("tasks", borders, array, encoded):
                from einturnip.cluster.dask_arrays import open_tasks

                return open_tasks(node.name, node.dtype, borders, array, encoded)
        return open_place(place, node.name, node.shape, node.dtype)

    def _sinks(self) -> dict[str, Sink]:
        tiles, found = tile_numbers(self.part), dict[str, Sink]()
        for output, (name, number) in enumerate(self.graph.outputs):
            node = self.graph.nodes[number]
            place = self.settings["outputs"][name]
            if place[0] == "blocks":
                found[name] = BlockSink(name, node.shape, node.dtype, ChunkGrid(place[1]))
                continue
            sink = open_sink_place(place, name, node.shape, node.dtype)
            self.open.append(sink)
            if isinstance(sink, CoordinatorSink):
                sink.connected(self.end.get, tiles.get(output_tier(self.graph, output), {}))
                object.__setattr__(sink, "offered", self.offered)
                object.__setattr__(sink, "offer", self.end.offer)
            found[name] = sink
        return found

    def _compile(self) -> None:
        tasks, machine = self.part.graph.taskgraph, replace(machine_here(THREADS), compiled=True)
        if self.settings["reproducible"] and self.settings["compiled"]:
            compile_all(tasks)
        elif self.settings["compiled"]:
            compile_ahead(tasks, machine, self.memory)

    def _require_memory(self, sources: Mapping[str, Source]) -> None:
        trim_heap()  # earlier runs and other tasks leave free memory on the heap
        fetches = any(isinstance(source, CoordinatorTensor) for source in sources.values())
        excess = excess_nbytes(self.part.graph, self.memory, THREADS) + in_transit_nbytes(self.part, fetches)
        excess += self.settings["extra"]
        if self.settings["bounded"] and excess > 0:
            raise CapacityError(
                f"its part does not fit in {format_size(self.memory)}; it needs "
                f"{format_size(-(-(self.memory + excess) // MIB) * MIB)}"
            )

    def _tick(self, schedule: SiteSchedule) -> Any:
        shown, tasks = -PROGRESS_SECONDS, self.part.graph.taskgraph

        def tick(trace: RunTrace) -> None:
            nonlocal shown
            if time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                task = int(self.part.graph.task[schedule.last_kernel]) if schedule.last_kernel >= 0 else -1
                node = int(tasks.node[task]) if task >= 0 else -1
                self.end.say("progress", ops=len(trace.order), seconds=trace.seconds, node=node)

        return tick

    def _result(self, trace: RunTrace, executor: OpExecutor, engine: SiteEngine, wire: SiteWire) -> dict[str, Any]:
        return {
            "peak": peak_resident_nbytes(),
            "busy": {int(lane): seconds for lane, seconds in trace.busy.items()},
            "stalls": trace.stalls,
            "times": (trace.timeline.begin, trace.timeline.end),
            "moved": dict(executor.moved),
            "received": dict(Counter(wire.received) + Counter(self.end.received_pieces())),
            "waited": dict(engine.waited),
            "events": executor.events.found(),
        }
