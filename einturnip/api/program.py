"""Programs and plans as Python objects."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from einturnip.api.inputs import check_names, close_all, compile_path, file_spec, open_inputs
from einturnip.api.jobs import Job, complete, needs_data, plan_job, results_nbytes
from einturnip.core.errors import CapacityError, RunError
from einturnip.core.settings import format_size, parse_size
from einturnip.devices.limits import available_memory
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.lang import compile_text
from einturnip.lang import types as lang
from einturnip.pipeline import Options, Planned, bind
from einturnip.planner.budget import resident_nbytes
from einturnip.planner.plan import LARGE_PLAN
from einturnip.runtime.types import Progress, RunReport
from einturnip.stores.generated import Absent
from einturnip.stores.location import written
from einturnip.stores.types import Array, Source

if TYPE_CHECKING:
    from einturnip.report.analyze import Analysis

Size = str | int
Target = str | os.PathLike[str] | Array


class Result(Mapping[str, Any]):
    """What a run gave: each output by name, and ``report``, what happened.

    An output is an array, or a ``File`` where it was streamed to one.
    """

    def __init__(self, values: Mapping[str, Any], report: RunReport, analyse: Callable[[], Analysis]) -> None:
        self._values = dict(values)
        self.report = report
        self._analyse = analyse

    def analyze(self) -> Analysis:
        """Predicted beside actual time of every statement: print its ``text()``, or look at its ``rows``."""
        return self._analyse()

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(f"no output {name!r}; there are {', '.join(self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {value.dtype}{list(value.shape)}" for name, value in self._values.items())
        return f"Result({shown})"


@dataclass(frozen=True)
class File:
    """A stored tensor by name: an input to a program, or an output that was streamed to a file."""

    spec: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of it, in memory."""
        source = _open(self.spec)
        try:
            out = np.empty(source.shape, source.dtype.numpy)
            source.read(tuple((0, n) for n in source.shape), out)
        finally:
            source.close()
        return out if dtype is None else out.astype(dtype, copy=False)


def _open(spec: str) -> Source:
    from einturnip.stores.open import open_source

    return open_source(spec, spec)


def open(path: str | os.PathLike[str]) -> File:
    """A tensor in a file (``x.npy``, ``w.safetensors::layer.0``), to be given to a program and read tile by tile.

    Raises:
        BindError: there is no such file. StoreError: it cannot be read.
    """
    source = _open(os.fspath(path))
    try:
        return File(os.fspath(path), source.shape, source.dtype.numpy)
    finally:
        source.close()


def compile(path_or_text: str | os.PathLike[str], dims: Mapping[str, int] | None = None) -> Program:
    """A program from a file or from source text, checked but without sizes.

    A string is a path where it ends in ``.ein`` and holds no line break. ``dims`` gives sizes their values.

    Raises:
        SourceError: the program is wrong; the message shows every place. BindError: no such file, or no such size.

        >>> import einturnip as et
        >>> et.compile("input x : f64[n]\\ns = sum[i] x[i]\\noutput s")
        Program(inputs: x, outputs: s)
    """
    is_text = isinstance(path_or_text, str) and ("\n" in path_or_text or not path_or_text.endswith(".ein"))
    if is_text:
        program, folder = compile_text(str(path_or_text), "<text>"), Path()
    else:
        path = Path(path_or_text)
        program, folder = compile_path(path), path.parent
    check_names("dim", dims or {}, program.dims)
    return Program(program, folder, MappingProxyType(dict(dims or {})))


@dataclass(frozen=True, repr=False)
class Program:
    """A compiled program: call it, or plan it. Holds no data and never changes, so threads may share it."""

    _program: lang.Program
    _folder: Path
    _dims: Mapping[str, int] = field(compare=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs' names."""
        return tuple(tensor.name for tensor in self._program.inputs)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the inputs that have no default: a call must give them."""
        return tuple(tensor.name for tensor in self._program.inputs if tensor.default is None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs' names."""
        return tuple(output.name for output in self._program.outputs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the compiler noticed that may be meant otherwise, each with its place."""
        return tuple(warning.render() for warning in self._program.warnings)

    def __repr__(self) -> str:
        return f"Program(inputs: {', '.join(self.inputs) or 'none'}, outputs: {', '.join(self.outputs) or 'none'})"

    def __call__(
        self,
        *,
        memory: Size | None = None,
        arena: Size | None = None,
        workers: int | None = None,
        out: Mapping[str, Target] | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        progress: Callable[[Progress], None] | None = None,
        data: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Result:
        """Run the program on NumPy arrays, anything that shares its memory by DLPack, paths or ``et.open`` handles.

        ``memory`` is what einturnip may add to this process (half of what is free, if not given): results and the
        arena together; ``arena`` sets the arena alone. ``out`` names files (or arrays) for results; what stands there
        is not held in memory. ``data`` takes inputs whose names are not free, such as one called ``memory``.

        Raises:
            BindError: inputs and program disagree. CapacityError: it does not fit. RunError: it failed on the way.
        """
        plan = self.plan(
            memory=memory,
            arena=arena,
            workers=workers,
            out=out,
            spill=spill,
            spill_limit=spill_limit,
            policy=policy,
            data=data,
            **inputs,
        )
        try:
            return plan.run(progress=progress)
        finally:
            plan.close()

    def plan(
        self,
        *,
        memory: Size | None = None,
        arena: Size | None = None,
        workers: int | None = None,
        out: Mapping[str, Target] | None = None,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: Size | None = None,
        policy: str = "critical-path",
        data: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        **inputs: Any,
    ) -> Plan:
        """What a call with these arguments would do. Inputs may be absent where ``dims`` gives their sizes."""
        given = {name: value.spec if isinstance(value, File) else value for name, value in inputs.items()}
        given |= {name: value.spec if isinstance(value, File) else value for name, value in (data or {}).items()}
        check_names("output", out or {}, self.outputs)
        sizes = {**self._dims, **(dims or {})}
        check_names("dim", sizes, self._program.dims)
        sources = open_inputs(self._program, given, self._folder, lenient=True)
        try:
            graph = bind(self._program, sources, sizes)
            targets = self._targets(out or {})
            options = Options(
                memory=None if arena is not None else _process_budget(memory, graph, targets),
                arena=None if arena is None else parse_size(arena),
                workers=workers,
                spill=None if spill is None else os.fspath(spill),
                spill_limit=None if spill_limit is None else parse_size(spill_limit),
                policy=policy,
            )
            stand_ins = complete(graph, sources, lambda node: Absent(node.name, node.shape, node.dtype))
            return Plan(plan_job(graph, stand_ins, targets, options))
        except BaseException:
            close_all(sources.values())
            raise

    def _targets(self, out: Mapping[str, Target]) -> dict[str, str | Array | None]:
        """Where each output goes: what the caller says, what the program says, or (None) an array yet to be made."""
        targets: dict[str, str | Array | None] = {}
        for output in self._program.outputs:
            target = out.get(output.name)
            if target is not None:
                targets[output.name] = target if isinstance(target, np.ndarray) else os.fspath(target)
            else:
                targets[output.name] = file_spec(output.file, self._folder) if output.file else None
        return targets


def _process_budget(memory: Size | None, graph: EinGraph, targets: Mapping[str, str | Array | None]) -> int:
    """What the whole process may hold, so that einturnip adds ``memory`` to it, results included.

    Raises:
        CapacityError: the results alone pass it; names those that must go to a file.
    """
    allowed = available_memory() // 2 if memory is None else parse_size(memory)
    held = results_nbytes(graph, (name for name, target in targets.items() if target is None))
    total = sum(held.values())
    if total >= allowed:
        largest = max(held, key=lambda name: held[name])
        budget = "half of the free memory" if memory is None else "memory="
        raise CapacityError(
            f"the result {largest} takes {format_size(held[largest])} and cannot stand in the {format_size(allowed)} "
            f'of {budget}. help: stream it to a file, out={{"{largest}": "{largest}.npy"}}',
            total,
        )
    return resident_nbytes() + allowed - total


def _analysis(planned: Planned, report: RunReport) -> Callable[[], Analysis]:
    """The analysis of a run, when it is asked for; that of a large plan now, so that the result holds no plan."""
    from einturnip.report.analyze import analyse

    if len(planned.memgraph) < LARGE_PLAN:
        return lambda: analyse(planned, report)
    made = analyse(planned, report)
    return lambda: made


class Plan:
    """A program planned for its inputs and a budget: ``explain`` it, ``run`` it (as often as wanted).

    It holds its inputs' files open until it is closed or forgotten.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._closing = weakref.finalize(self, job.close)

    def explain(self) -> str:
        """What will run, its predicted time, memory and bytes moved, as text."""
        from einturnip.report.explain import explain

        return explain(self._job.planned)

    def run(self, progress: Callable[[Progress], None] | None = None, stop: threading.Event | None = None) -> Result:
        """Run the plan.

        Raises:
            BindError: an input has sizes but no data. RunError: it failed on the way; nothing half-written is left.
        """
        job = self._job
        for node in job.planned.graph.nodes:
            if isinstance(node, InputNode) and isinstance(job.sources.get(node.name), Absent):
                needs_data(node)
        targets = dict(job.targets)
        for name, number in job.planned.graph.outputs:
            if targets.get(name) is None:
                node = job.planned.graph.nodes[number]
                targets[name] = np.empty(node.shape, node.dtype.numpy)
        with _running():
            report, _ = replace(job, targets=targets).run(progress, stop)
        values = {name: open(written(t, name)) if isinstance(t, str) else t for name, t in targets.items()}
        return Result(values, report, _analysis(job.planned, report))

    def close(self) -> None:
        """Close the inputs' files; the plan cannot run any more. Twice is allowed."""
        self._closing()

    def __repr__(self) -> str:
        return f"Plan({self._job.planned.graph.program})"


# -- forks -------------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_runs = 0
_broken = False


@contextmanager
def _running() -> Iterator[None]:
    """Around a run. A child forked while one is going on inherits locks that no thread of its own will ever free."""
    global _runs
    if _broken:
        raise RunError(
            "this process was forked while einturnip was running in its parent, so einturnip cannot run in it. "
            "help: fork before the run, or start processes with multiprocessing's 'spawn' or 'forkserver'"
        )
    with _lock:
        _runs += 1
    try:
        yield
    finally:
        with _lock:
            _runs -= 1


def _after_fork() -> None:
    global _lock, _broken
    _broken = _broken or _runs > 0
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
