"""The task of one worker: runs its site's part within the memory of its process."""

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

from einturnip.cluster.dask_arrays import BlockSink, open_chunks, pieces_of
from einturnip.cluster.planning import PARTS, THREADS, window_nbytes
from einturnip.cluster.tensors import HeldSink, HeldTensor, input_tier, open_place, open_sink_place, tile_numbers
from einturnip.cluster.workers import versions
from einturnip.core.errors import CapacityError, Interrupted
from einturnip.core.process_limits import available_memory
from einturnip.core.resident import peak_resident_nbytes, resident_nbytes, trim_heap
from einturnip.core.units import MIB, format_size
from einturnip.devices.host import blas_threads
from einturnip.devices.stored import machine_here
from einturnip.eingraph.types import InputNode
from einturnip.planner.budget import excess_nbytes
from einturnip.planner.predict import slots
from einturnip.runtime.host.compilation import compile_ahead, compile_all, has_room
from einturnip.runtime.host.executor import OpExecutor
from einturnip.runtime.host.run_resources import RunResources
from einturnip.runtime.scheduler.policies import policy
from einturnip.runtime.scheduler.trace import RunTrace
from einturnip.sites.part import SitePart
from einturnip.sites.process_run import SiteEngine, SiteSchedule, run_part
from einturnip.sites.wires.dask import Address, DaskWire, Line, PeerLost, RunMail, WorkerMail, sent_ops
from einturnip.sites.wires.dask_chunks import Index, PeerChunks
from einturnip.sites.wires.dask_cluster import is_ending, this_worker
from einturnip.storage.chunks.chunk_grid import ChunkGrid
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.generated import SummarySink
from einturnip.storage.types import Array, Sink, Source
from einturnip.tuning.memory import PROGRESS_SECONDS


def describe(dask_worker: Any) -> dict[str, Any]:
    """Return what a worker reports about itself, with this module loaded; called on its event loop."""
    trim_heap()
    return {
        "versions": versions(),
        "threads": dask_worker.state.nthreads,
        "limit": dask_worker.memory_manager.memory_limit,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "resident": resident_nbytes(),
        "available": available_memory(),
    }


def run_site(run: str, token: str, coordinator: str, site: int) -> dict[tuple[str, Index], Array]:
    """Take part in a run; errors go to its coordinator. Returns the blocks of outputs that stay here."""
    worker = this_worker()
    try:
        line = Line(worker, coordinator, run, token, site)
    except Interrupted:  # another site has ended the run
        return {}
    try:
        _reset_peak()
        result, blocks = _Site(worker, line, run, token).run()
        line.say("done", result=b"".join(PARTS.to_bytes(result)))
        return blocks
    except BaseException as error:
        with suppress(Exception):
            content = {"kind": type(error).__name__, "text": str(error), "lost": isinstance(error, PeerLost)}
            line.say("failed", **content, ending=is_ending(worker))
        return {}
    finally:
        line.close()
        WorkerMail.of(worker).site_ended(run)


class _Site:
    def __init__(self, worker: Any, line: Line, run: str, token: str) -> None:
        self.line, self.worker = line, worker
        self.mail: RunMail = WorkerMail.of(worker).runs[run]
        self.part: SitePart
        data = bytes(line.message()["data"])  # a copy, whose arrays are aligned
        self.part, self.memory, addresses, self.more = PARTS.from_bytes(data)
        self.address = Address(run, token, line.site, addresses)
        self.graph = self.part.graph.taskgraph.decomposition.graph
        self.offered: dict[int, Array] = {}
        self.chunks = PeerChunks(worker, self.address, self.mail)
        self.chunks.serve(pieces_of(self.more["served"]))

    def run(self) -> tuple[dict[str, Any], dict[tuple[str, Index], Array]]:
        """Run the part; return its measurements, and the blocks of outputs that stay here."""
        graph, more = self.part.graph, self.more
        sources, sinks = self._sources(), self._sinks()
        host = RunResources(graph, slots(THREADS), policy("fixed"), more["spill"], more["spill_limit"])
        try:
            self._compile()
            self._require_memory(sources)
            nodes = self.graph.nodes
            by_node = [sources[n.name] if isinstance(n, InputNode) else None for n in nodes]
            executor = OpExecutor(graph, host.arena, by_node, [*sinks.values()], host.spill)
            queue: SimpleQueue[Any] = SimpleQueue()
            wire = DaskWire(self.worker, self.address, self.part, executor.views, queue.put)
            schedule = SiteSchedule(self.part, host.lanes, wire)
            engine = SiteEngine(executor, schedule, host.pool, wire, queue)
            self.line.on_stop = wire.stop

            def value(number: int) -> Array:
                found = self.offered.get(number)
                return wire.value(number) if found is None else found

            self.line.say("ready", resident=resident_nbytes())
            self.line.message()
            self.mail.attach(queue.put, value, sent_ops(self.part))
            with blas_threads(THREADS):
                trace = run_part(executor, schedule, engine, self._tick(schedule), self.line.stopped)
            require_unchanged_inputs(sources.values(), sinks.values())
            for sink in sinks.values():
                sink.commit()
            summaries = {name: s.parts() for name, s in sinks.items() if isinstance(s, SummarySink)}
            kept = [sink.blocks for sink in sinks.values() if isinstance(sink, BlockSink)]
            blocks = {key: block for of_sink in kept for key, block in of_sink.items()}
            return self._result(trace, executor, engine, wire) | {"summaries": summaries}, blocks
        finally:
            host.close()
            for source in sources.values():
                source.close()
            for sink in sinks.values():
                sink.close()

    def _sources(self) -> dict[str, Source]:
        tiles, found = tile_numbers(self.part), dict[str, Source]()
        for node in self.graph.nodes:
            if isinstance(node, InputNode):
                place = self.more["inputs"][node.name]
                source = open_chunks(place, node.name, node.dtype, self.chunks.fetch) or open_place(
                    place, node.name, node.shape, node.dtype
                )
                if isinstance(source, HeldTensor):
                    source.connected(self.line.get, tiles.get(input_tier(self.graph, node.name), {}))
                found[node.name] = source
        return found

    def _sinks(self) -> dict[str, Sink]:
        tiles, found = tile_numbers(self.part), dict[str, Sink]()
        first = 2 + len(self.graph.nodes)
        for output, (name, number) in enumerate(self.graph.outputs):
            node = self.graph.nodes[number]
            place = self.more["outputs"][name]
            if place[0] == "blocks":
                found[name] = BlockSink(name, node.shape, node.dtype, ChunkGrid(place[1]))
                continue
            sink = open_sink_place(place, name, node.shape, node.dtype)
            if isinstance(sink, HeldSink):
                sink.connected(self.line.get, tiles.get(first + output, {}))
                object.__setattr__(sink, "offered", self.offered)
                object.__setattr__(sink, "offer", self.line.offer)
            found[name] = sink
        return found

    def _compile(self) -> None:
        tasks, machine = self.part.graph.taskgraph, replace(machine_here(THREADS), compiled=True)
        if self.more["reproducible"] and self.more["compiled"]:
            compile_all(tasks)
        elif self.more["compiled"] and has_room(self.memory, resident_nbytes()):
            compile_ahead(tasks, machine)

    def _require_memory(self, sources: Mapping[str, Source]) -> None:
        trim_heap()  # of what earlier runs and other tasks have left
        excess = excess_nbytes(self.part.graph, self.memory, THREADS) + window_nbytes(self.part, sources)
        excess += self.more["extra"]
        if self.more["bounded"] and excess > 0:
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
                task = int(self.part.graph.task[schedule.begun]) if schedule.begun >= 0 else -1
                node = int(tasks.node[task]) if task >= 0 else -1
                self.line.say("progress", ops=len(trace.order), seconds=trace.seconds, node=node)

        return tick

    def _result(self, trace: RunTrace, executor: OpExecutor, engine: SiteEngine, wire: DaskWire) -> dict[str, Any]:
        return {
            "peak": peak_resident_nbytes(),
            "busy": {int(lane): seconds for lane, seconds in trace.busy.items()},
            "stalls": trace.stalls,
            "times": (trace.timeline.begin, trace.timeline.end),
            "moved": dict(executor.moved),
            "received": dict(Counter(wire.received) + Counter(self.chunks.received)),
            "waited": dict(engine.waited),
            "events": executor.events.found(),
        }


def _reset_peak() -> None:
    """Let the process's peak memory begin anew, so that it is that of this run."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
