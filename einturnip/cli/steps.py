"""``einturnip run --steps``: runs a program with states step by step, with feeds and checkpoints."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from einturnip.cli.process import StopRequest, on_signals
from einturnip.core.errors import BindError, Interrupted, WorkerLost

if TYPE_CHECKING:
    from einturnip.api.jobs import Missing
    from einturnip.api.results import Result
    from einturnip.api.session import Session
    from einturnip.cli.planning import ProgramArguments
    from einturnip.cluster.transport import Cluster
    from einturnip.lang.program import TypedProgram
    from einturnip.storage.types import Sink, Source

LINES = 10
REFRESH_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Total number of steps, files whose slices are fed, the checkpoint folder and its interval in steps."""

    total: int
    feeds: Mapping[str, str]
    checkpoint: Path | None
    every: int


def run_steps(
    arguments: ProgramArguments,
    missing: Missing,
    step_options: StepOptions,
    quiet: bool,
    cluster_of: AbstractContextManager[Cluster | None],
) -> None:
    """Run the remaining steps, on a cluster if there is one, and write the results of the last one."""
    from einturnip.api.session import Session
    from einturnip.cli.planning import MemoryLimit, budget_options, require_kept, scalars, targets_of
    from einturnip.compiler import reading_within
    from einturnip.report.summary import output_lines

    limit, folder = MemoryLimit(), arguments.path.parent
    options = budget_options(arguments.budget)
    with on_signals() as stop, cluster_of as cluster, ExitStack() as opened:
        if cluster is None:
            options = _with_memory(options)
        with reading_within(options) if cluster is None else nullcontext():
            program = arguments.compiled()
            feeds = opened.enter_context(_feeds(program, step_options.feeds))
            given = scalars(program, arguments.inputs)
            repeated = next((name for name in feeds if name in given), None)
            if repeated is not None:
                raise BindError(f"input {repeated} is given both by -i and by --feed; give it by one of them")
            session = Session(program, folder, arguments.dims, options, given, missing, cluster=cluster)
        with session:
            steps = _Steps(session, feeds, step_options, stop, quiet)
            result = steps.run(options.retries)
            targets = targets_of(program, arguments.outputs, folder)
            sinks = _written(session, result, targets, [s.name for s in program.states])
    if not quiet:
        for line in output_lines(sinks, targets):
            click.echo(line)
    require_kept(options.memory, limit.exceeded_nbytes(options.memory) if cluster is None else steps.exceeded_nbytes)


def _with_memory(options: Any) -> Any:
    """Add the default bound on the process's memory."""
    from dataclasses import replace

    from einturnip.core.process_resources import available_memory

    if options.memory is None and options.arena is None:
        return replace(options, memory=available_memory() // 2)
    return options


@contextmanager
def _feeds(program: TypedProgram, feeds: Mapping[str, str]) -> Iterator[dict[str, Source]]:
    """Context with the sources of ``--feed``, which have one axis more than their inputs."""
    from einturnip.api.inputs import check_names, close_all, open_given

    check_names("input", feeds, (tensor.name for tensor in program.inputs if not tensor.state))
    opened: dict[str, Source] = {}
    try:
        for tensor in program.inputs:
            if tensor.name not in feeds:
                continue
            source = opened[tensor.name] = open_given(feeds[tensor.name], tensor.name)
            expected = f"{tensor.dtype} with {tensor.rank + 1} axes, the first of which counts the steps"
            if source.dtype != tensor.dtype or len(source.shape) != tensor.rank + 1 or not source.shape[0]:
                found = f"{source.dtype}[{', '.join(map(str, source.shape))}]"
                raise BindError(f"--feed {tensor.name}={feeds[tensor.name]} must be {expected}, and is {found}")
        yield opened
    finally:
        close_all(opened.values())


class _Steps:
    """The steps that are left, with their checkpoints.

    ``exceeded_nbytes``: bytes by which a worker of the cluster exceeded its memory.
    """

    def __init__(
        self, session: Session, feeds: Mapping[str, Source], options: StepOptions, stop: StopRequest, quiet: bool
    ) -> None:
        self.session, self.feeds, self.options, self.stop, self.quiet = session, feeds, options, stop, quiet
        self.exceeded_nbytes = 0
        self._saved = -1

    def run(self, retries: int) -> Result | None:
        """Run the steps; return the outputs of the last one.

        Steps whose states were lost with a worker are run again from the checkpoint, up to ``retries`` times.
        """
        self._resume()
        show_progress = _StepProgress(self.session.steps, self.options.total, self.quiet)
        result = None
        while self.session.steps < self.options.total:
            self.stop.running = True
            try:
                result = self._step()
            except WorkerLost as error:
                self.stop.running = False
                if self._saved < 0 or not retries:
                    raise
                retries -= 1
                click.echo(f"warning: {error}", err=True)
                self._resume()
                continue
            show_progress(self.session.steps, result)
            if self.stop.event.is_set():
                steps, folder = self.session.steps, self.options.checkpoint
                where = f"; its checkpoint is in {folder}" if self._saved == steps else ""
                raise Interrupted(f"stopped after step {steps} of {self.options.total}{where}")
        self.stop.running = False
        return result

    def _step(self) -> Result:
        session, options = self.session, self.options
        result = session.step(data={name: _slice(source, session.steps) for name, source in self.feeds.items()})
        if session.on_cluster:
            self.exceeded_nbytes = max(self.exceeded_nbytes, result.report.memory_exceeded_nbytes)
        if options.checkpoint is not None and (
            session.steps % options.every == 0 or session.steps == options.total or self.stop.event.is_set()
        ):
            session.save(options.checkpoint)
            self._saved = session.steps
        return result

    def _resume(self) -> None:
        if self.options.checkpoint is not None and _resumed(self.session, self.options.checkpoint):
            self._saved = self.session.steps
            if not self.quiet:
                click.echo(f"resuming after step {self._saved} of {self.options.checkpoint}")


def _resumed(session: Session, folder: Path) -> bool:
    """Resume from the latest intact checkpoint, if any; print warnings of damaged ones on standard error."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loaded = session.load(folder)
    for warning in found:
        click.echo(f"warning: {warning.message}", err=True)
    return loaded


def _slice(source: Source, step: int) -> Source:
    """The slice of a feed for one step."""
    from einturnip.storage.slice import slice_source

    return slice_source(source, {0: step % source.shape[0]})


def _written(session: Session, result: Result | None, targets: Mapping[str, Any], states: list[str]) -> dict[str, Sink]:
    """Write outputs and states to their files; summarize those without a file."""
    from einturnip.storage.arrays import array_source
    from einturnip.storage.generated import SummarySink
    from einturnip.storage.open import OutputRequest, open_sinks
    from einturnip.storage.outputs.state_storage import copy_tensor

    sources = {name: session.source(name) for name in targets if name in states}
    if result is not None:
        sources |= {name: array_source(result[name], name) for name in targets if name not in states}
    requests = [OutputRequest(targets[n], n, s.shape, s.dtype) for n, s in sources.items() if targets[n] is not None]
    opened = dict(zip((request.name for request in requests), open_sinks(requests), strict=True))
    sinks: dict[str, Sink] = {n: opened.get(n) or SummarySink(n, s.shape, s.dtype) for n, s in sources.items()}
    try:
        for name, source in sources.items():
            copy_tensor(source, sinks[name])
        for written in sinks.values():
            written.commit()
    except BaseException:
        for written in sinks.values():
            written.abort()
        raise
    return sinks


class _StepProgress:
    """Shows steps done, scalar outputs and rate: one line on a terminal, a few lines otherwise."""

    def __init__(self, first: int, total: int, quiet: bool) -> None:
        self.first, self.total, self.quiet = first, total, quiet
        self.terminal = sys.stderr.isatty()
        self.begun = self.shown = time.monotonic()
        self.interval = max(1, -(-(total - first) // LINES))

    def __call__(self, step: int, result: Result) -> None:
        """Show a completed step."""
        if self.quiet:
            return
        now, last = time.monotonic(), step == self.total
        if self.terminal:
            if last or now - self.shown >= REFRESH_SECONDS:
                self.shown = now
                click.echo(f"\r\x1b[K{self._line(step, result, now)}", err=True, nl=last)
        elif last or (step - self.first) % self.interval == 0:
            click.echo(self._line(step, result, now))

    def _line(self, step: int, result: Result, now: float) -> str:
        scalars = {name: value for name, value in result.items() if not np.shape(value)}
        shown = "".join(f"  {name} {np.asarray(value).item():.6g}" for name, value in scalars.items())
        rate = (step - self.first) / max(now - self.begun, 1e-9)
        return f"step {step}/{self.total}{shown}  {rate:.3g} steps/s"
