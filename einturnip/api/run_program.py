"""Runs a planned program from Python: small plans in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from einturnip.api.active_runs import run_in_progress
from einturnip.api.jobs import Job, needs_data, overlaps
from einturnip.api.plan_cache import CachedPlan, CachedStages
from einturnip.api.result_memory import empty
from einturnip.api.results import Result, open
from einturnip.api.staged_job import StagedJob
from einturnip.devices.kind import choose
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.planner.planner import PlannedProgram
from einturnip.runtime.scheduler.report import Progress, RunReport
from einturnip.storage.arrays import ArraySource, array_sink, require_apart
from einturnip.storage.device_arrays import DeviceArray, in_library_of
from einturnip.storage.file_versions import require_unchanged_inputs
from einturnip.storage.generated import AbsentSource
from einturnip.storage.location import written
from einturnip.storage.sliced import require_shape
from einturnip.storage.types import Array
from einturnip.tuning.memory import LARGE_PLAN

if TYPE_CHECKING:
    from einturnip.report.analyze import Analysis


def run_job(
    job: Job | StagedJob,
    cached: CachedPlan | CachedStages,
    progress: Callable[[Progress], None] | None,
    stop: threading.Event | None,
) -> Result:
    """Run a job, into new arrays for outputs without a target.

    Raises:
        BindError: an input has sizes but no data, or another shape than when the run was planned. RunError: the run
            failed; no incomplete output remains.
    """
    if isinstance(job, StagedJob):
        return _run_stages(job, progress, stop)
    assert isinstance(cached, CachedPlan)
    graph = job.planned.graph
    for node in graph.nodes:
        if isinstance(node, InputNode):
            if isinstance(job.sources[node.name], AbsentSource):
                needs_data(node)
            require_shape(job.sources[node.name])
    arrays = [source for source in job.sources.values() if isinstance(source, DeviceArray)]
    targets = with_arrays(graph, job.targets, new=partial(_new_on_device, arrays[0]) if arrays else empty)
    with run_in_progress():
        if cached.prepared.is_inline and progress is None and stop is None:
            result = _run_small(job, cached, targets)
            if result is not None:
                require_unchanged_inputs(job.sources.values(), targets.values())
                return result
        report, _ = replace(job, targets=targets).run(progress, stop)
    for name in targets if arrays else ():
        if job.targets[name] is None:
            targets[name] = in_library_of(arrays[0].value, targets[name])
    return _result(job.planned, targets, report)


def _new_on_device(array: DeviceArray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a new array on the GPU of another array."""
    return choose(array.device).kind.empty(array.number, shape, dtype)


def _run_stages(job: StagedJob, progress: Callable[[Progress], None] | None, stop: threading.Event | None) -> Result:
    for stage, _ in job.plans:
        for node in stage.graph.nodes:
            if isinstance(node, InputNode):
                if isinstance(job.sources.get(node.name), AbsentSource):
                    needs_data(node)
                require_shape(job.sources.get(node.name))
    targets = with_arrays(job.outputs, job.targets)
    with run_in_progress():
        report, _ = job.run(progress, stop, targets)
    return Result(_values(targets), lambda: report, job.last_analysis(report))


def run_on_cluster(
    job: Job, progress: Callable[[Progress], None] | None, stop: threading.Event | None = None
) -> Result:
    """Run a job on the workers of its cluster; each output has a target, or its blocks stay there."""
    report, _ = job.run(progress, stop)
    assert job.on_workers is not None
    values = _values({name: t for name, t in job.targets.items() if t is not None}) | job.on_workers.arrays
    if job.on_workers.plan.pages is not None:  # the result keeps a mapped file, which takes no memory
        return Result(values, lambda: report, partial(_analysed, job.ran, lambda: report))
    return Result(values, lambda: report, analysis(job.ran, lambda: report))


def with_arrays(
    graph: EinGraph,
    targets: Mapping[str, str | Array | None],
    kept: Collection[str] = (),
    new: Callable[[tuple[int, ...], np.dtype[Any]], Array] = empty,
) -> dict[str, str | Array]:
    """Return the targets of all outputs but those kept elsewhere, with arrays by ``new`` for the others."""
    require_apart(targets)
    found = {name: target for name, target in targets.items() if target is not None}
    for name, number in graph.outputs:
        if name not in found and name not in kept:
            found[name] = new(graph.nodes[number].shape, graph.nodes[number].dtype.numpy)
    return found


def _result(planned: PlannedProgram, targets: Mapping[str, str | Array], report: RunReport) -> Result:
    return Result(_values(targets), lambda: report, analysis(planned, lambda: report))


def _values(targets: Mapping[str, str | Array]) -> dict[str, Any]:
    return {name: open(written(t, name)) if isinstance(t, str) else t for name, t in targets.items()}


def _run_small(job: Job, cached: CachedPlan, targets: Mapping[str, str | Array | None]) -> Result | None:
    """Run a small plan inline; None if files take part, or if an error needs its statement located."""
    planned, inputs, outputs = job.planned, _arrays(job), []
    for name, number in planned.graph.outputs:
        target, node = targets[name], planned.graph.nodes[number]
        if inputs is None or not isinstance(target, np.ndarray):
            return None
        if target is job.targets[name]:
            array_sink(target, name, node.shape, node.dtype)
            if overlaps(target, job.sources.values()):
                return None
        outputs.append(target)
    report = None if inputs is None else cached.prepared.run(inputs, outputs)
    return None if report is None else Result(targets, report, analysis(planned, report))


def run_on_arrays(cached: CachedPlan, inputs: Sequence[Array | None]) -> Result | None:
    """Rerun a plan on arrays, by node, into new ones; None where the full path is needed."""
    prepared = cached.prepared
    outputs = [empty(shape, dtype) for _, shape, dtype in prepared.outputs]
    with run_in_progress():
        report = prepared.run(inputs, outputs)
    if report is None:
        return None
    values = {name: out for (name, _, _), out in zip(prepared.outputs, outputs, strict=True)}
    return Result(values, report, analysis(cached.planned, report))


def run_arrays(cached: CachedPlan, inputs: Sequence[Array | None]) -> Array | None:
    """The single output of a plan rerun on arrays, by node; None where the full path is needed."""
    ((_, shape, dtype),) = cached.prepared.outputs
    out = empty(shape, dtype)
    with run_in_progress():
        return None if cached.prepared.run(inputs, [out]) is None else out


def _arrays(job: Job) -> list[Array | None] | None:
    """The array of each input, by node; None if one is not an array."""
    arrays: list[Array | None] = []
    for node in job.planned.graph.nodes:
        source = job.sources[node.name] if isinstance(node, InputNode) else None
        if source is not None and not isinstance(source, ArraySource):
            return None
        arrays.append(None if source is None else source.array)
    return arrays


def analysis(planned: PlannedProgram, report: Callable[[], RunReport]) -> Callable[[], Analysis]:
    """The analysis of a run on request.

    For a large plan computed now, so that the result does not keep the plan.
    """
    if len(planned.memgraph) < LARGE_PLAN:
        return partial(_analysed, planned, report)
    values = _analysed(planned, report)
    return lambda: values


def _analysed(planned: PlannedProgram, report: Callable[[], RunReport]) -> Analysis:
    from einturnip.report.analyze import analyse

    return analyse(planned, report())
