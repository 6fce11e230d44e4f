"""The values that planning starts from: options, and requests for programs and their graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from einturnip.core.errors import BindError
from einturnip.core.process_resources import available_memory, resident_nbytes, usable_cores
from einturnip.core.units import counted
from einturnip.cost.machine import Machine
from einturnip.cost.site_rates import MachineLink, relative
from einturnip.devices.kind import DeviceChoice
from einturnip.devices.stored import machine_here
from einturnip.eingraph.types import ConcatNode, EinGraph, InputNode
from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Box
from einturnip.planner.budget import PlanningMemory, rounded
from einturnip.planner.replayed_plan import ReplayedChoices
from einturnip.runtime.host.compilation import available, may_be_used
from einturnip.runtime.host.zero_copy import zero_copy_machine
from einturnip.storage import file_format, location
from einturnip.storage.arrays import ArraySource
from einturnip.storage.chunks.chunked_source import ChunkedSource
from einturnip.storage.chunks.files import ChunkFiles
from einturnip.storage.device_arrays import DeviceArray, require_on
from einturnip.storage.types import Source, contiguous_nbytes
from einturnip.tiling.file_layout import FileLayout

if TYPE_CHECKING:
    from einturnip.planner.compare import Rival
    from einturnip.tiling.equivalence import EquivalenceClasses
    from einturnip.tiling.search import Tiling


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. Sizes in bytes.

    ``memory``: limit of the whole process; ``arena``: limit of tiles alone, instead; by default half of the free
    memory. ``check``: prove the memory graph before it runs. ``fuse``: allow fusion of einsums. ``exact``: rewrites
    keep every digit of results; otherwise squared distances may become matrix products. ``compiled``: compile expensive
    kernels to machine code before the run, if there is memory for a compiler. ``reproducible``: the bits depend only on
    the program, its data and this machine's libraries. ``base_nbytes``: resident bytes added to ``memory`` in messages,
    if the user's limit counts only what is added. ``replayed``: plan and schedule of a recorded run, used instead of a
    search. ``force``: plan programs that would be refused as infeasible (``feasible``). ``device``: ``cpu``,
    ``cuda:1``, ``cuda:0,1``, ...; except on the CPU, the budget is that of each device, and ``host_memory`` limits the
    process. ``link``: between any two devices; by default devices copy from each other in memory. ``rates``: of
    the devices' kernels; () if they are equal. ``extra``: by device, the bytes of its budget beyond ``memory`` or
    ``arena``, which are for the smallest device; () if all have the same. ``retries``: maximum number of times that a
    run on a cluster that lost a worker is planned again for the remaining workers. ``runs``: expected runs of the plan,
    of which each repays planning. ``on_device``: outputs that are arrays in the memory of the device.
    """

    memory: int | None = None
    arena: int | None = None
    workers: int | None = None
    spill: str | None = None
    spill_limit: int | None = None
    policy: str = "critical-path"
    check: bool = True
    fuse: bool = True
    exact: bool = True
    compiled: bool = True
    reproducible: bool = False
    replayed: ReplayedChoices | None = None
    base_nbytes: int = 0
    device: str = "cpu"
    host_memory: int | None = None
    force: bool = False
    link: MachineLink | None = None
    rates: tuple[float, ...] = ()
    extra: tuple[int, ...] = ()
    retries: int = 0
    runs: int = 1
    on_device: tuple[str, ...] = ()

    @property
    def plan_key(self) -> tuple[object, ...]:
        """The options that a plan depends on, except its budget, machine and device."""
        return self.fuse, self.exact, self.reproducible, self.policy, self.extra


Choose: TypeAlias = "Callable[[EquivalenceClasses], Tiling]"
"""Returns the one tiling of a graph to lower."""


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """A graph to plan.

    ``layouts``: layouts of stored tensors by node; ``readable``: outputs that can be read back. ``ordered``: states are
    summed in one order, in any order of tiles. ``choose``: replaces the search for a tiling. ``max_price``: if by
    formula all tilings take more seconds, none is lowered. ``rival``: a plan of another variant; worse ones are not
    made. ``extra``: by device, bytes of its arena beyond that of the smallest. ``max_arena``: limit of the arena; 0
    requests the plan with minimum memory. ``finished``: by output, regions that are stored already.
    """

    graph: EinGraph
    memory: PlanningMemory
    machine: Machine
    layouts: Mapping[int, FileLayout] = field(default_factory=dict)
    readable: frozenset[int] = frozenset()
    ordered: bool = False
    devices: int = 1
    extra: tuple[int, ...] = ()
    choose: Choose | None = None
    max_price: float = math.inf
    rival: Rival | None = None
    max_arena: int | None = None
    finished: Mapping[int, Sequence[Box]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A program to plan for a device.

    ``targets``: files of the outputs that are written; ``layouts``: layouts of inputs by name. ``machine``: prices
    plans. ``memory``: limit of the process, if any. ``finished``: regions of outputs that are stored already.
    """

    graph: EinGraph
    sources: Mapping[str, Source]
    targets: Mapping[str, str]
    options: Options
    device: DeviceChoice
    machine: Machine
    memory: int | None
    layouts: Mapping[str, FileLayout]
    finished: Mapping[str, Sequence[Box]] = field(default_factory=dict)

    @property
    def rewrite_limit(self) -> int | None:
        """Maximum bytes of an intermediate that rewrites add, if possible; None for no limit."""
        if self.options.replayed is not None:
            return self.options.replayed.limit
        if self.options.reproducible:
            return None
        return self.memory if self.options.arena is None else self.options.arena

    def of_graph(self, graph: EinGraph) -> GraphRequest:
        """Return the request for one variant of the program."""
        options, replayed = self.options, self.options.replayed
        choose, arena = (None, options.arena) if replayed is None else (replayed.tiling, replayed.arena)
        if options.reproducible:
            from einturnip.planner.canonical import canonical_tiling  # runs of cached plans do not load it

            choose = canonical_tiling
        return GraphRequest(
            graph,
            PlanningMemory(self.memory, arena, base=options.base_nbytes),
            self.machine,
            file_layouts(graph, self.layouts, self.targets),
            frozenset(i for i, (name, _) in enumerate(graph.outputs) if name in self.targets),
            options.reproducible,
            self.device.count,
            options.extra,
            choose,
            finished={i: self.finished[name] for i, (name, _) in enumerate(graph.outputs) if name in self.finished},
        )


def request_for(
    graph: EinGraph, sources: Mapping[str, Source], targets: Mapping[str, str], options: Options, device: DeviceChoice
) -> PlanRequest:
    """Return the request for a plan on a device of this machine, within the options' budget.

    Raises:
        BindError: a link is stated for one device; the number of rates or memory sizes is not that of the devices;
            reproducible bits of unlike kinds of devices; an input is in the memory of another device.
    """
    if options.link is not None and device.count == 1:
        raise BindError(f"--link joins devices, and the plan is for one. help: {_named(2)}")
    if options.rates and len(options.rates) != device.count:
        stated, sites = len(options.rates), device.count
        hint = "help: state one for each, such as 2,1 for two sites" if sites > 1 else f"help: {_named(stated)}"
        raise BindError(f"--rates states {stated} rates, and the plan is for {counted(sites, 'site')}. {hint}")
    require_one_for_each(options, device.count)
    require_on(sources, device.name)
    if options.reproducible and device.host and not device.kind.host_kernels:
        raise BindError(
            f"the kernels of {device.kind.name} and of the CPU round differently, so the bits would depend on which "
            f"site computes a tile. help: --reproducible with devices of one kind, such as {device.kind.name}:0"
        )
    host, replayed = machine_here(options.workers or usable_cores()), options.replayed
    machine, rates = device.kind.machine(host, device), options.rates or device.rates(host)
    memory = options.memory
    if memory is None and options.arena is None:
        memory = rounded(available_memory() // 2)
    if replayed is not None:
        compiled = replayed.compiled
    else:
        compiled = options.compiled and (
            available() if options.reproducible else may_be_used(memory, resident_nbytes())
        )
    machine = replace(
        machine,
        compiled=compiled,
        runs=1 << options.runs.bit_length() - 1,  # so that loops of about as many iterations share a plan
        link=options.link,
        rates=relative(rates) if rates else (),
    )
    # An output that goes to an array has its own name as its target.
    arrays = all(isinstance(s, ArraySource) for s in sources.values()) and all(t == n for n, t in targets.items())
    if arrays and device.kind.on_host and not options.reproducible:
        machine = zero_copy_machine(machine, graph)
    layouts = {name: file_layout(source) for name, source in sources.items()}
    return PlanRequest(graph, sources, targets, options, device, machine, memory, layouts)


def _named(sites: int) -> str:
    """How to ask for several sites."""
    return f"name {sites} devices, as in --device sim:{','.join(map(str, range(sites)))}, or plan --sites {sites}"


def require_one_for_each(options: Options, sites: int) -> None:
    """Refuse options that state the memories of another number of sites.

    Raises:
        BindError: states both numbers.
    """
    if options.extra and len(options.extra) != sites:
        raise BindError(
            f"the memory is stated for {len(options.extra)} sites, and the plan is for {counted(sites, 'site')}. "
            f"help: state one size for all, or one for each{'' if sites > 1 else '; ' + _named(len(options.extra))}"
        )


def file_layout(source: Source) -> FileLayout:
    """Return a source's axes from the longest stride to the contiguous one, and its chunks, if any."""
    axes = range(len(source.shape))
    unit = [tuple((0, min(n, 2 if a == b else 1)) for b, n in enumerate(source.shape)) for a in axes]
    order = sorted(axes, key=lambda a: contiguous_nbytes(source, unit[a]) > source.dtype.itemsize)
    if isinstance(source, ChunkedSource):
        return FileLayout(tuple(order), source.chunks, source.whole_chunks, source.reading_nbytes)
    if isinstance(source, DeviceArray):
        return FileLayout(tuple(order), in_place=True)
    return FileLayout(tuple(order), source.chunks if isinstance(source, ChunkFiles) else ())


def output_chunks(target: str, shape: tuple[int, ...], dtype: DType, periods: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the chunk shape of a result in ``target``; () if it is contiguous.

    ``target``: a file with or without a key, or an array's name. ``periods``: see ``FileFormat.output_chunks``.
    """
    found = file_format.find(location.ending(target.partition("::")[0]))
    return () if found is None else found.output_chunks(shape, dtype, periods)


def file_layouts(
    graph: EinGraph, inputs: Mapping[str, FileLayout], targets: Mapping[str, str]
) -> dict[int, FileLayout]:
    """Return the layouts of inputs and results by node.

    ``inputs``: layouts by name; ``targets``: files of outputs by name.
    """
    nodes = enumerate(graph.nodes)
    found = {i: inputs[n.name] for i, n in nodes if isinstance(n, InputNode) and n.name in inputs}
    for node in graph.nodes:  # a tile that is seen as a part of a concatenation is in the arena
        for i in node.operands if isinstance(node, ConcatNode) else ():
            if i in found and found[i].in_place:
                found[i] = replace(found[i], in_place=False)
    for name, i in graph.outputs:
        node = graph.nodes[i]
        if i not in found and (chunks := output_chunks(targets.get(name, ""), node.shape, node.dtype)):
            found[i] = FileLayout(tuple(range(len(node.shape))), chunks)
    return found
