"""Machines described in files, for simulation and tables: rates, memories and the links between them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from einturnip.core.errors import BindError
from einturnip.core.package_data import folder
from einturnip.core.regular_files import read_regular
from einturnip.cost.site_rates import MachineLink, parse_rates, relative

MEMORIES = ("device", "host", "disk")
PEER_LINK = "device->device"


@dataclass(frozen=True, slots=True)
class KernelRates:
    """Kernel rates: a kernel takes the longer of its operations and its bytes, after a launch.

    Units: operations per second of matrix products and of all other operations, bytes per second, seconds.
    """

    product_flops: float
    scalar_flops: float
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True, eq=False)
class DescribedMachine:
    """A machine with its memories in bytes and its links by ``from->to``.

    ``inputs``: the memory of the inputs. ``kernels``: None if the plan's own predictions for a host apply. ``workers``:
    number of concurrent kernels. Transfers over one link follow one another; those over different links overlap.
    Kernel rates and workers are those of one of ``devices`` devices, which receive from each other over
    ``device->device``. Each has links of its own, except to the memories in ``shared``. ``rates``: of the kernels of
    each device, times those of ``kernels``; () if they are equal. ``device_memory``: of each device.
    """

    name: str
    title: str
    workers: int
    kernels: KernelRates | None
    memory: dict[str, int]
    links: dict[str, MachineLink]
    inputs: str
    devices: int = 1
    shared: frozenset[str] = frozenset()
    rates: tuple[float, ...] = ()
    device_memory: tuple[int, ...] = ()

    def link(self, source: str, target: str) -> MachineLink:
        """Return the link from one memory to another."""
        return self.links[f"{source}->{target}"]


def described(name: str) -> DescribedMachine:
    """Return the machine with a name from ``machine_names``, or described by a file of the same form.

    Raises:
        BindError: there is no such machine, or its file is incomplete.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = folder("cost") / "machines" / f"{name}.toml"
    if not path.is_file():
        raise BindError(
            f"there is no machine {name!r}. help: name one of {', '.join(machine_names())}, or a .toml file"
        )
    return _read(path)


def machine_names() -> tuple[str, ...]:
    """Return the names of the machines that come with einturnip."""
    return tuple(sorted(path.stem for path in (folder("cost") / "machines").glob("*.toml")))


def product_flops(gpu: str) -> float | None:
    """Return the operations per second of products on a GPU; None if no machine describes it.

    ``gpu``: its name by the driver. A machine describes it if the machine's name, without a number of GPUs, is part
    of it, as ``a100`` of ``a100x8`` is in ``NVIDIA A100-SXM4-80GB``.
    """
    compact = "".join(gpu.lower().split())
    kinds = {name: name.partition("x8")[0] for name in machine_names()}
    matching = [name for name, kind in kinds.items() if kind in compact]
    if not matching:
        return None
    kernels = described(max(matching, key=lambda name: len(kinds[name]))).kernels
    return None if kernels is None else kernels.product_flops


@cache
def _read(path: Path) -> DescribedMachine:
    try:
        table: dict[str, Any] = tomllib.loads(read_regular(path).decode("utf-8"))
        links = {name: MachineLink(**link) for name, link in table["links"].items()}
        kernels = KernelRates(**table["kernels"]) if "kernels" in table else None
        workers = int(table.get("workers", 1))
        devices, shared = int(table.get("devices", 1)), frozenset(table.get("shared", ()))
        if devices > 1 and PEER_LINK not in links:
            raise ValueError(f"{devices} devices without the link {PEER_LINK}")
        each = tuple(map(int, _of_each(table["memory"]["device"], devices, "[memory] device")))
        memory = {name: min(each) if name == "device" else int(table["memory"][name]) for name in MEMORIES}
        rates = relative(parse_rates(_of_each(table["rates"], devices, "rates"))) if "rates" in table else ()
        if rates and kernels is None:
            raise ValueError("rates are relative to [kernels], which is missing")
        title, inputs = table["title"], table["inputs"]
        return DescribedMachine(path.stem, title, workers, kernels, memory, links, inputs, devices, shared, rates, each)
    except OSError as error:
        raise BindError(f"{path.name} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise BindError(f"{path.name} does not describe a machine: {error} is missing") from error
    except (tomllib.TOMLDecodeError, TypeError, ValueError, BindError) as error:
        raise BindError(f"{path.name} does not describe a machine: {error}") from error


def _of_each(stated: Any, devices: int, name: str) -> list[Any]:
    """Return the value of each device, from a list or one value for all."""
    found: list[Any] = stated if isinstance(stated, list) else [stated] * devices
    if len(found) != devices:
        raise ValueError(f"{name} states {len(found)} values for {devices} devices")
    return found
