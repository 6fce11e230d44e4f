"""Runs several programs as one, with a common budget and common workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from einturnip.api.jobs import Job, tiers
from einturnip.compiler import Options, make_plan
from einturnip.core.errors import BindError, DeviceError
from einturnip.core.process_resources import available_memory, reserved, resident_nbytes
from einturnip.devices.kind import choose
from einturnip.eingraph.types import EinGraph
from einturnip.memgraph.check import check
from einturnip.planner.budget import Budget, PlanningMemory
from einturnip.planner.multi_program import plan_together
from einturnip.planner.planner import PlannedProgram, with_lower_bound
from einturnip.planner.predict import predict
from einturnip.runtime.host.compilation import has_room
from einturnip.runtime.scheduler.policies import policy
from einturnip.storage.open import packages_nbytes
from einturnip.storage.types import Array, Source
from einturnip.taskgraph.multi_program import join_graphs
from einturnip.taskgraph.types import TaskGraph


@dataclass(frozen=True)
class ProgramPart:
    """One of the programs, with its sizes, inputs and output targets (see ``Job``)."""

    name: str
    bound: EinGraph
    sources: Mapping[str, Source]
    targets: Mapping[str, str | Array | None]


def part_names(programs: Sequence[str]) -> list[str]:
    """Name each program after its file without ``.ein``, numbered from its second occurrence."""
    stems = ["stdin" if p == "-" else Path(p).name.removesuffix(".ein").replace(".", "_") for p in programs]
    return [s if s not in stems[:n] else f"{s}{stems[: n + 1].count(s)}" for n, s in enumerate(stems)]


def shared_job(parts: Sequence[ProgramPart], options: Options) -> Job:
    """Plan programs together. Inputs and outputs of the job are called ``program.X``.

    Raises:
        CapacityError: one does not fit, alone or with the others' plans. BindError: one reads what another writes.
        DeviceError: several devices are requested, which combined programs do not support.
    """
    if choose(options.device).count > 1:
        raise DeviceError(
            f"--device {options.device}: several programs run on one device only. help: run one after the other"
        )
    _require_independent(parts)
    memory = options.memory
    if memory is None and options.arena is None:
        memory = available_memory() // 2
    compiled = options.compiled and has_room(memory, resident_nbytes())
    options = replace(options, memory=memory, compiled=compiled)
    separate_plans = [make_plan(p.bound, p.sources, tiers(p.targets), replace(options, check=False)) for p in parts]

    def lower(number: int, arena: int) -> TaskGraph:
        part, part_options = parts[number], replace(options, memory=None, arena=arena, check=False)
        return make_plan(part.bound, part.sources, tiers(part.targets), part_options).taskgraph

    names = [part.name for part in parts]
    targets = {f"{p.name}.{name}": target for p in parts for name, target in p.targets.items()}
    sources = {f"{p.name}.{name}": source for p in parts for name, source in p.sources.items()}
    shared, machine = PlanningMemory(memory, options.arena), separate_plans[0].machine
    stored_outputs = tiers(targets)
    with reserved(packages_nbytes(stored_outputs.values())):
        memgraph = plan_together(
            [a.memgraph for a in separate_plans], lower, names, shared, machine, frozenset(stored_outputs)
        )
    if options.check:
        check(memgraph)
    planned = with_lower_bound(
        PlannedProgram(
            memgraph.taskgraph.decomposition.graph,
            memgraph,
            predict(memgraph, machine, policy(options.policy)),
            Budget(memory, memgraph.capacity),
            machine,
            sources,
            stored_outputs,
        )
    )
    return Job(join_graphs([p.bound for p in parts], names), planned, sources, targets, options)


def _require_independent(parts: Sequence[ProgramPart]) -> None:
    """Refuse a file that one program writes and another reads, because the order would be undefined."""
    written = {
        Path(target.partition("::")[0]).resolve(): (part, name)
        for part in parts
        for name, target in part.targets.items()
        if isinstance(target, str)
    }
    for part in parts:
        for name, source in part.sources.items():
            found = written.get(Path(source.tier).resolve())
            if found is not None and found[0] is not part:
                raise BindError(
                    f"{part.name} reads {source.tier} (input {name}), which {found[0].name} writes "
                    f"(output {found[1]}). help: run one after the other"
                )
