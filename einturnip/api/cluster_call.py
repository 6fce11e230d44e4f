"""Calls of programs that run on the workers of a Dask client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from einturnip.api.call_planning import SizedProgram
from einturnip.api.call_settings import DASK, Settings
from einturnip.api.inputs import check_names, close_all, open_inputs, require_output
from einturnip.api.jobs import Job, complete, needs_data, plan_job
from einturnip.api.results import File, Result
from einturnip.api.run_program import run_on_cluster, with_arrays
from einturnip.api.session_states import initial_state, with_state_outputs
from einturnip.compiler import bind
from einturnip.core.errors import BindError
from einturnip.runtime.scheduler.report import Progress
from einturnip.storage.formats.hdf5_external import external_files_allowed


def run_on(
    client: Any,
    sized: SizedProgram,
    settings: Settings,
    data: Mapping[str, Any],
    allow_external: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Run a program on the workers of a client. ``settings.memory`` bounds each of them.

    Raises:
        BindError, CapacityError, DeviceError, RunError: see ``Program.__call__``.
    """
    with external_files_allowed(allow_external):
        job = _job(client, sized, settings, data)
    try:
        return run_on_cluster(job, progress)
    finally:
        job.close()


def _job(client: Any, sized: SizedProgram, settings: Settings, data: Mapping[str, Any]) -> Job:
    from einturnip.cluster.dask import DaskCluster

    program, sizes = sized.program, sized.sizes
    if settings.word != "cpu":
        raise BindError("client= runs on the CPUs of workers; leave out device=")
    given = {name: value.spec if isinstance(value, File) else value for name, value in data.items()}
    outputs = [o.name for o in program.outputs] + [s.name for s in program.states]
    check_names("output", settings.out, dict.fromkeys(outputs))
    check_names("dim", sizes, program.dims)
    require_output(program)
    with_states = with_state_outputs(program, settings.out)
    options = settings.options(on_workers=True)
    sources = open_inputs(program, given, sized.folder, True)
    try:
        graph = bind(with_states, sources, sizes)
        every = complete(graph, sources, initial_state(with_states, needs_data))
        asked = sized.targets(with_states, settings.out)
        kept = frozenset(name for name, target in asked.items() if isinstance(target, str) and target == DASK)
        targets = with_arrays(graph, {name: None if name in kept else t for name, t in asked.items()}, kept)
        return plan_job(graph, every, targets, options, DaskCluster(client), kept)
    except BaseException:
        close_all(sources.values())
        raise
