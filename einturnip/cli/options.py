"""Options that several verbs share, and the types of their values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from einturnip.core.errors import BindError
from einturnip.core.program_limits import planning_limit, require_room
from einturnip.core.units import parse_size, parse_sizes

if TYPE_CHECKING:
    from einturnip.cost.site_rates import MachineLink

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", bound=float)  # which int conforms to

# The names in runtime/scheduler/policies.py, repeated so that --help does not import it.
POLICIES = ("critical-path", "double-buffering", "fixed", "random")

# Memory that modules, and any run, add to a process that has only read its command line: less than all that were seen.
MIN_RUN_NBYTES = 28 << 20


class Number(click.ParamType[N]):
    """A number from ``smallest`` to ``largest``; of ``kind`` int, a whole one.

    click's own ranges name the types and the bounds in messages as a programmer does: "integer range", "x>=1".
    """

    name = "N"

    def __init__(self, kind: Callable[[str], N], smallest: N, largest: N | None = None) -> None:
        self._kind, self._smallest, self._largest = kind, smallest, largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> N:
        try:
            number = self._kind(value)
            # False for NaN too.
            if number >= self._smallest and (self._largest is None or number <= self._largest):
                return number
        except ValueError:
            pass
        bounds = f"of at least {self._smallest}"
        if self._largest is not None:
            bounds = f"from {self._smallest} to {self._largest}"
        self.fail(f"'{value}' is not a {'whole ' if self._kind is int else ''}number {bounds}", param, ctx)


class ByteSize(click.ParamType[int]):
    """Bytes, such as ``512MB`` or ``2GiB``."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_size(value)
        except BindError as error:
            self.fail(str(error), param, ctx)


class ByteSizes(click.ParamType["int | tuple[int, ...]"]):
    """Bytes, or bytes of each site: ``2GiB,512MiB``."""

    name = "SIZE[,SIZE...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, ...]:
        try:
            sizes = parse_sizes(value)
        except BindError as error:
            self.fail(str(error), param, ctx)
        return sizes if len(sizes) > 1 else sizes[0]


class LinkRates(click.ParamType["MachineLink"]):
    """A rate and a latency, such as ``1.25GB/s,50us``."""

    name = "RATE,LATENCY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MachineLink:
        from einturnip.cost.site_rates import parse_link

        try:
            return parse_link(value)
        except BindError as error:
            self.fail(str(error), param, ctx)


class Rates(click.ParamType[tuple[float, ...]]):
    """A rate for each site, such as ``2,1``."""

    name = "RATE,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        from einturnip.cost.site_rates import parse_rates

        try:
            return parse_rates(value)
        except BindError as error:
            self.fail(str(error), param, ctx)


class NameValue(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, right = (part.strip() for part in str(value).partition("="))
        if not (name and equals and right):
            self.fail(f"'{value}' is not of the form {self.name}", param, ctx)
        return name, right


class DimSize(click.ParamType[tuple[str, int]]):
    """``n=4096``."""

    name = "NAME=SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, _, number = (part.strip() for part in str(value).partition("="))
        if not name or not number.replace("_", "").isdecimal():
            self.fail(f"'{value}' is not of the form n=4096", param, ctx)
        return name, int(number)


def _unique(ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise click.BadParameter(f"'{repeated}' is given twice", ctx, param)
    return values


def _device(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from einturnip.devices.cuda.probe import driver

    # Each site or worker has the memory. Workers say themselves what they need, which is more.
    of_sites = (ctx.params.get("sites") or 1) > 1 or ctx.params.get("at") is not None
    on_host = not of_sites and (value == "cpu" or (value == "auto" and driver()))
    memory = ctx.params["memory"]
    if on_host and "numpy" not in sys.modules and not isinstance(memory, tuple):
        with planning_limit(memory, MIN_RUN_NBYTES):
            require_room()
    from einturnip.devices.kind import check

    check(value)
    return value


def _allow_external(ctx: click.Context, param: click.Parameter, allow: bool) -> None:
    if allow:
        from einturnip.storage.formats.hdf5_external import external_files_allowed

        ctx.with_resource(external_files_allowed(True))


def _all(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
program = click.argument("program", metavar="PROG.ein", type=click.Path(path_type=Path))
programs = click.argument("programs", metavar="PROG.ein...", type=click.Path(path_type=Path), nargs=-1, required=True)
quiet = click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")

inputs = _all(
    click.option(
        "-i",
        "--input",
        "inputs",
        type=NameValue("NAME=FILE"),
        multiple=True,
        callback=_unique,
        help="Read input NAME from FILE or FILE::KEY; a scalar may be a number: -i a=3.",
    ),
    click.option("--dim", "dims", type=DimSize(), multiple=True, callback=_unique, help="Give a size: --dim n=4096."),
    click.option(
        "--allow-external",
        is_flag=True,
        expose_value=False,
        callback=_allow_external,
        help="Let an HDF5 input take its data from other files.",
    ),
)
outputs = click.option(
    "-o",
    "--output",
    "outputs",
    type=NameValue("NAME=FILE"),
    multiple=True,
    callback=_unique,
    help="Write output NAME to FILE or FILE::KEY.",
)

budget = _all(
    click.option(
        "--memory",
        type=ByteSizes(),
        is_eager=True,  # ``_device`` reads it
        help="Bound on the memory of the whole process. [half of the free memory]",
    ),
    click.option("--arena", type=ByteSizes(), help="Size of the arena alone, instead of --memory."),
    click.option("--spill", metavar="DIR", type=click.Path(), help="Folder for tensors that do not fit in memory."),
    click.option("--spill-limit", type=ByteSize(), help="Bound on the spilled bytes."),
    click.option("--workers", type=Number(int, 1), help="Number of compute threads. [one per core]"),
    click.option(
        "--policy",
        type=click.Choice(POLICIES),
        default="critical-path",
        show_default=True,
        help="Order of the ops that are ready.",
    ),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        metavar="DEVICE",
        callback=_device,
        help="auto, cpu, cuda, cuda:1, several as cuda:0,1, with the CPU as cuda:0+cpu, or sim.",
    ),
    click.option("--link", type=LinkRates(), help="Link between two devices: 1.25GB/s,50us. [copies in memory]"),
    click.option("--rates", type=Rates(), help="How fast each device or site computes: 2,1. [equally fast]"),
    click.option("--host-memory", type=ByteSize(), help="Bound on the process when --memory is that of a GPU."),
    click.option("--reproducible", is_flag=True, help="The same bits for any memory, workers and devices."),
    click.option("--force", is_flag=True, help="Run even if it takes longer than a week."),
)
cluster = _all(
    click.option(
        "--at",
        metavar="CLUSTER",
        is_eager=True,  # ``_device`` reads it
        help="Run on several processes, each within --memory: local:4, a Dask scheduler (tcp://host:8786), or mpi.",
    ),
    click.option("--insecure", is_flag=True, help="Allow --at tcp:// to other machines, without encryption."),
    click.option(
        "--retries",
        type=Number(int, 0),
        default=0,
        metavar="N",
        help="With --at: run up to N times again, on the workers that are left, after one was lost. [0]",
    ),
)
schedule = _all(
    click.option(
        "--record", type=click.Path(path_type=Path), metavar="FILE", help="Write the schedule of the run, for --replay."
    ),
    click.option(
        "--replay",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Repeat the schedule of a recorded run exactly.",
    ),
)
json_log = click.option("--json-log", is_flag=True, help="Log events of the run as lines of JSON on standard error.")
trace = click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Record when each step ran, for 'einturnip trace FILE'.",
)

steps = _all(
    click.option(
        "--steps",
        type=Number(int, 1),
        metavar="N",
        help="Run N steps of a program with states; outputs are the last step's.",
    ),
    click.option(
        "--feed",
        "feeds",
        type=NameValue("NAME=FILE"),
        multiple=True,
        callback=_unique,
        metavar="NAME=FILE",
        help="Give step k the k-th slice of FILE along its first axis; start over at its end.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Save states in DIR, and resume from the latest checkpoint there.",
    ),
    click.option(
        "--every",
        type=Number(int, 1),
        default=100,
        show_default=True,
        metavar="K",
        help="Save a checkpoint after each K steps.",
    ),
)
