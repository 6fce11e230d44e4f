"""Plans large programs in a process of their own, so that the coordinator's memory stays small.

The child receives the request as encoded data, makes the plan, writes it encoded to a temporary file without a name,
and ends, which gives back the memory of the search. The coordinator maps the file: of the plan's arrays, it has in
memory only pages that it has read lately. Phases of planning and errors come back as lines of JSON.
"""

from __future__ import annotations

import json
import mmap
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from typing import IO, Any

from einturnip.cluster.planning import SitesPlan, WorkersRequest, devices, plan_on
from einturnip.cluster.tensors import PlannedInput
from einturnip.cluster.workers import Worker
from einturnip.core import errors, phases
from einturnip.core.errors import CapacityError, EinturnipError, InternalError, Interrupted, RunError
from einturnip.cost.machine import Machine
from einturnip.cost.site_rates import MachineLink
from einturnip.planner.budget import Budget
from einturnip.planner.codec import EXPRESSIONS, GRAPHS, PlanCodec
from einturnip.planner.planner import PlannedProgram
from einturnip.planner.request import Options
from einturnip.sites.part import SitePart
from einturnip.sites.types import SitePlan
from einturnip.tiling.file_layout import FileLayout
from einturnip.tuning.memory import MAX_NODES_PLANNED_HERE, MAX_TENSORS_PLANNED_HERE, TICK_SECONDS

_CODEC = PlanCodec(
    (*EXPRESSIONS, *GRAPHS, SitePlan, SitePart, Worker, PlannedInput, FileLayout, Options, MachineLink, Machine)
    + (Budget, WorkersRequest)
)
_COUNT = 8
_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from einturnip.cluster import planning_process as p; p.serve()"


def plan_apart(request: WorkersRequest, stop: threading.Event | None = None) -> SitesPlan:
    """Plan a program for workers, in a process of its own if the plan may be large; see ``plan_on``.

    ``stop``: ends planning, as Ctrl-C does.

    Raises:
        Interrupted: ``stop`` was set. RunError: the process ended without a plan. Others: see ``plan_on``.
    """
    if not _may_be_large(request):
        return plan_on(request)
    with tempfile.TemporaryFile() as file, _child(file) as process:
        encoded = b"".join(_CODEC.to_bytes(request))
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, which its replies show
            process.stdin.write(len(encoded).to_bytes(_COUNT, "little"))
            process.stdin.write(encoded)
            process.stdin.flush()
        del encoded
        for reply in _replies(process.stdout, stop):
            match reply:
                case {"phase": phase}:
                    phases.enter(phase)
                case {"tried": seconds}:
                    phases.tried(seconds)
                case {"error": kind, "text": text, "needed": needed}:
                    raise _error(kind, text, needed)
                case {"failed": trace}:
                    raise InternalError(f"planning failed:\n{trace}")
                case {"done": True}:
                    return _mapped(file, request)
        raise _ended(process.wait())


def _may_be_large(request: WorkersRequest) -> bool:
    """Return whether a plan may have thousands of tasks: many nodes, or tensors much larger than an arena."""
    nodes = request.graph.nodes
    if len(nodes) > MAX_NODES_PLANNED_HERE:
        return True
    tensors = sum(prod(n.shape) * n.dtype.itemsize for n in nodes)
    return tensors > MAX_TENSORS_PLANNED_HERE * max(1, min(request.arenas))


@contextmanager
def _child(file: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Context with the process that plans into a file; it ends with the context."""
    # In a session of its own, so that Ctrl-C in a terminal reaches this process alone, which then ends the child.
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(file.fileno()), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(file.fileno(),),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        with suppress(BrokenPipeError), process:
            pass  # closes the pipes, and waits


def _replies(pipe: IO[bytes], stop: threading.Event | None) -> Iterator[Any]:
    """Yield the replies of the child until it ends.

    Raises:
        Interrupted: ``stop`` was set.
    """
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if stop is not None and stop.is_set():
                raise Interrupted("interrupted")
            if not selector.select(TICK_SECONDS):
                continue
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)


def _mapped(file: IO[bytes], request: WorkersRequest) -> SitesPlan:
    """Return the plan in a file, whose arrays are in the file."""
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    planned, memories, parts, extra, read_again, output_chunks, periods = _CODEC.from_bytes(memoryview(pages))
    memgraph, prediction, budget, machine, capacity, limit = planned
    graph, workers, targets = memgraph.taskgraph.decomposition.graph, request.workers, dict(request.targets)
    program = PlannedProgram(
        graph, memgraph, prediction, budget, machine, {}, targets, devices(len(workers)), capacity=capacity, limit=limit
    )
    kept = frozenset(request.kept)
    return SitesPlan(program, workers, memories, parts, kept, extra, read_again, output_chunks, periods, pages)


def _error(kind: str, text: str, needed: int) -> EinturnipError:
    """Return an error of the child as one of this process."""
    found = getattr(errors, kind)
    return found(text, needed) if issubclass(found, CapacityError) else found(text)  # type: ignore[no-any-return]


def _ended(code: int) -> RunError:
    why = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return RunError(
        f"the process that plans the program {why}. Nothing was written. help: if this machine is out of memory, end "
        "other programs; a larger --memory or --arena makes smaller plans"
    )


def serve() -> None:
    """Plan the program that standard input states, in a process that ``plan_apart`` has started."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no reply
    data = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(_COUNT), "little"))
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def say(**reply: Any) -> None:
        replies.write(json.dumps(reply) + "\n")

    try:
        request = _CODEC.from_bytes(data)
        del data
        with phases.listening(_Phases(say)):
            plan = plan_on(request)
        made = plan.planned
        planned = made.memgraph, made.prediction, made.budget, made.machine, made.capacity, made.limit
        with open(int(sys.argv[1]), "wb", closefd=False) as file:
            more = plan.read_again, dict(plan.output_chunks), plan.periods
            for piece in _CODEC.to_bytes((planned, plan.memories, plan.parts, plan.extra, *more)):
                file.write(piece)
        say(done=True)
    except EinturnipError as error:
        say(error=type(error).__name__, text=str(error), needed=getattr(error, "needed", 0))
    except Exception:
        import traceback

        say(failed=traceback.format_exc())


def _end_with_parent() -> None:
    """End this process when the one that has started it closes its input, as it does when it ends."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(1)


class _Phases:
    """Sends the phases of planning to the coordinator; implements ``phases.Listener``."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say

    def enter(self, phase: str) -> None:
        """See Listener."""
        self._say(phase=phase)

    def tried(self, seconds: float) -> None:
        """See Listener."""
        self._say(tried=seconds)

    def clear(self) -> None:
        """Do nothing: planning prints no messages."""
