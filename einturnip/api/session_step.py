"""Parts of a session's step: where its outputs go, and the plans of one that has stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from einturnip.api.held_values import HeldValues
from einturnip.api.jobs import Missing, results_nbytes
from einturnip.api.staged_job import StagedJob
from einturnip.compiler import Options
from einturnip.core.errors import CapacityError
from einturnip.eingraph.build.stage_types import StagedProgram
from einturnip.eingraph.types import EinGraph
from einturnip.storage.arrays import array_sink
from einturnip.storage.outputs.state_storage import StateStorage
from einturnip.storage.types import Array, Sink, Source


def step_sinks(graph: EinGraph, storages: Mapping[str, StateStorage]) -> tuple[dict[str, Array], dict[str, Sink]]:
    """New arrays for the outputs that are no states, and the sinks of all outputs."""
    values, sinks = dict[str, Array](), dict[str, Sink]()
    for name, number in graph.outputs:
        node = graph.nodes[number]
        if name in storages:
            sinks[name] = storages[name].write
        else:
            values[name] = np.empty(node.shape, node.dtype.numpy)
            sinks[name] = array_sink(values[name], name, node.shape, node.dtype)
    return values, sinks


def plan_stages(
    staged: StagedProgram, sources: Mapping[str, Source], missing: Missing, held: HeldValues, options: Options
) -> StagedJob:
    """Plan a step whose states are ``held``.

    They get second copies, because any stage may read what the last one replaces, and move to files where the plans do
    not fit otherwise.

    Raises:
        CapacityError: they do not fit with all states in files.
    """
    graph = staged.stages[-1].graph
    results = sum(results_nbytes(graph, (name for name, _ in graph.outputs if name not in held.storages)).values())
    if options.memory is not None:
        options = replace(options, memory=options.memory - results, base_nbytes=options.base_nbytes + results)
    targets = {name: name if name in held.storages else None for name, _ in graph.outputs}
    while True:
        held.double(options)
        states = {name: storage.read for name, storage in held.storages.items()}
        try:
            return StagedJob(staged, {**sources, **states}, missing, targets, options)
        except CapacityError as error:
            if not held.make_room(error, options):
                raise
