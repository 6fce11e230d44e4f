"""Machine model: the measured rates that plans are priced with."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise, product
from typing import Any

from einturnip.cost.machine_defaults import POINTS, PRODUCTS, SIDES, TABLE_BITS, TURNS
from einturnip.cost.site_rates import MachineLink
from einturnip.ir.functions import PRICED_AS

Table = tuple[tuple[str, float], ...]
Products = tuple[tuple[str, tuple[float, ...]], ...]
# Cost of an element type relative to f32, if its own rate is unknown.
_WIDTHS = {"bool": 0.25, "int8": 0.25, "uint8": 0.25, "float16": 1.0, "bfloat16": 1.0, "complex64": 2.0}
# Operations that cost as much as a measured one.
_SAME_COST = {
    "reduce.minimum.inner": "reduce.maximum.inner",
    "reduce.minimum.outer": "reduce.maximum.outer",
    "reduce.logical_and.inner": "reduce.logical_or.inner",
    "less_equal": "less",
    "greater": "less",
    "greater_equal": "less",
    "not_equal": "equal",
    "scatter.min": "scatter.max",
    "scatter.mean": "scatter.sum",
    "bitwise_and": "minimum",
    "real": "copy",
    "Check": "reduce.add.outer",
    "imag": "copy",
}
_UNKNOWN = 1.0e-9  # seconds per point of an unknown operation


@dataclass(frozen=True)
class Machine:
    """Rates of one machine, all its workers busy. Defaults: a small server.

    ``doctor --calibrate`` measures. ``read_bandwidth``: files not in the page cache; ``cached_bandwidth``: files in the
    page cache; ``near_bandwidth``: the same, into memory in the last-level cache of ``cache_nbytes``;
    ``write_bandwidth``: outputs; ``spill_read``, ``spill_write``: the spill file, bypassing the page cache. All are
    totals of one disk, for any number of readers. ``memory_bandwidth``: bytes that one worker copies while the others
    copy too. ``op_latency``: overhead of an op. ``run_latency``: cost of one more run of bytes in a file;
    ``cold_run_latency``: additional cost of a run of one page that is not in the page cache. ``page_latency``:
    additional cost of a single page that is not in the page cache. ``fault``: cost of the first use of a byte of the
    arena. ``read_core``, ``write_core``, ``spill_core``: share of a core that a thread uses while it reads cold files,
    writes outputs, reads or writes the spill file; 1 if files are in memory, little if the thread waits for a disk.

    ``compiled``: kernels may be machine code and are priced as such; ``runs``: expected runs of a plan, each of which
    repays compiling. ``link``: between two devices, each of which receives one value at a time; None if the threads of
    the receiver copy them in memory. ``hosts``: the machine of
    each site, by number; sites of one machine share its link and its page cache. () if each device has a link of its
    own. ``rates``: of the kernels of each site, relative to the fastest; () if they are equal.

    Shapes:
        points: seconds per point of an array operation, by ``name.dtype``, with operands in the cache.
        turns: seconds of Python overhead, by name (see cost.kernel_work).
        products: seconds of matrix products (m, k) by (k, n), by dtype, over SIDES x SIDES x SIDES (m, n, k).

    Units: bytes, bytes/s, seconds, cores.
    """

    workers: int = 2
    memory_bandwidth: float = 8.0e9
    read_bandwidth: float = 1.5e9
    cached_bandwidth: float = 8.0e9
    near_bandwidth: float = 8.0e9
    cache_nbytes: float = 1.0
    write_bandwidth: float = 1.2e9
    spill_read: float = 1.5e9
    spill_write: float = 1.2e9
    op_latency: float = 6.0e-5
    run_latency: float = 1.2e-6
    cold_run_latency: float = 1.0e-5
    page_latency: float = 1.0e-4
    fault: float = 5.0e-10
    read_core: float = 0.2
    write_core: float = 1.0
    spill_core: float = 0.2
    points: Table = POINTS
    turns: Table = TURNS
    products: Products = PRODUCTS
    compute: str = "cpu:0"
    compiled: bool = False
    runs: int = 1
    link: MachineLink | None = None
    hosts: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Short hash of all the rates; machines with equal fingerprints give equal plans."""
        rates = {field.name: getattr(self, field.name) for field in fields(self)}
        return hashlib.sha256(json.dumps(rates).encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        """Return a hash that equal machines share."""
        return hash(self.fingerprint)

    @cached_property
    def _points(self) -> dict[str, float]:
        return dict(self.points)

    @cached_property
    def _turns(self) -> dict[str, float]:
        return dict(self.turns)

    @cached_property
    def _products(self) -> dict[str, tuple[float, ...]]:
        return dict(self.products)

    def point_seconds(self, name: str) -> float:
        """Return the seconds per point of an array operation ``name.dtype``; estimated if it was not measured."""
        found = self._points.get(name)
        if found is None:
            found = self._points[name] = self._estimated(name)
        return found

    def _estimated(self, name: str) -> float:
        operation, _, dtype = name.rpartition(".")
        operation = _SAME_COST.get(operation, operation)
        if f"{operation}.{dtype}" in self._points:
            return self._points[f"{operation}.{dtype}"]
        width = _WIDTHS.get(dtype, 4.0 if dtype == "complex128" else 2.0 if dtype.endswith("64") else 1.0)
        for other, scale in ((f"{operation}.float64", 0.5), (f"{operation}.float32", 1.0), (f"{operation}.int64", 0.5)):
            if other in self._points:
                return self._points[other] * scale * width
        if operation.startswith("convert"):
            return self._points.get("convert.float32.float64", _UNKNOWN)
        other = PRICED_AS.get(operation, operation)
        if other != operation:
            return self.point_seconds(f"{other}.{dtype}")
        return _UNKNOWN * width

    def row_seconds(self, nbytes: float) -> float:
        """Return the seconds per row of a gather from a table of ``nbytes``, without its elements.

        The rate depends on the cache level that holds the table.
        """
        bits = min(max(math.log2(max(1.0, nbytes)), TABLE_BITS[0]), TABLE_BITS[-1])
        for low, high in pairwise(TABLE_BITS):
            if bits <= high:
                share = (bits - low) / (high - low)
                few, many = (self.point_seconds(f"rows.{b}") for b in (low, high))
                return few + share * (many - few)
        raise AssertionError(bits)

    def turn_seconds(self, name: str) -> float:
        """Return the seconds of one call, block, step, loop, iteration or action, without its points."""
        return self._turns.get(name, 0.0)

    def product_seconds(self, dtype: str, m: int, n: int, k: int) -> float:
        """Return the seconds of one matrix product by one worker, interpolating the logarithms of rates."""
        table = self._products.get(dtype) or self._products["float32"]
        places = [_between(x) for x in (m, n, k)]
        logarithm = 0.0
        for corner in product((0, 1), repeat=3):
            weight, index, points = 1.0, 0, 1
            for (at, share), bit in zip(places, corner, strict=True):
                weight *= share if bit else 1.0 - share
                index, points = index * len(SIDES) + at + bit, points * SIDES[at + bit]
            if weight:
                logarithm += weight * math.log(table[index] / points)
        return math.exp(logarithm) * m * n * k

    def copy_seconds(self, nbytes: float) -> float:
        """Return the seconds of a copy in memory."""
        return self.op_latency + nbytes / self.memory_bandwidth

    def move_seconds(self, nbytes: float) -> float:
        """Return the seconds of a move between devices."""
        return self.copy_seconds(nbytes) if self.link is None else self.link.seconds(nbytes)

    @property
    def gemm_flops(self) -> float:
        """Operations per second of large f32 products by one worker."""
        side = SIDES[-1]
        return 2.0 * side**3 / self.product_seconds("float32", side, side, side)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Machine:
        """Return the machine that ``to_json`` wrote.

        Raises:
            ValueError, TypeError, KeyError: ``found`` is not a machine.
        """
        added = {"near_bandwidth": found["cached_bandwidth"], "cache_nbytes": 1.0}  # absent in older files
        numbers: dict[str, Any] = {name: float(found.get(name, added.get(name, math.nan))) for name in _NUMBERS}
        if not all(math.isfinite(x) and x > 0 for x in numbers.values()):
            raise ValueError("a rate is not positive")
        points, turns = (tuple((str(k), float(v)) for k, v in found[name].items()) for name in ("points", "turns"))
        products = tuple((str(k), tuple(map(float, v))) for k, v in found["products"].items())
        rates = [x for table in (points, turns) for _, x in table] + [x for _, row in products for x in row]
        if "float32" not in dict(products) or any(len(row) != len(SIDES) ** 3 for _, row in products):
            raise ValueError("a table of products is incomplete")
        if not all(math.isfinite(x) and x > 0 for x in rates):
            raise ValueError("a rate is not positive")
        return cls(workers=int(found["workers"]), points=points, turns=turns, products=products, **numbers)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for json.dump."""
        out = {name: getattr(self, name) for name in ("workers", *_NUMBERS)}
        return out | {name: dict(getattr(self, name)) for name in ("points", "turns", "products")}


_NUMBERS = tuple(field.name for field in fields(Machine) if field.type == "float")


def _between(side: int) -> tuple[int, float]:
    """Return the index of SIDES below a size, and its logarithmic position towards the next."""
    if side <= SIDES[0]:
        return 0, 0.0
    for at in range(len(SIDES) - 1):
        if side <= SIDES[at + 1]:
            return at, math.log(side / SIDES[at]) / math.log(SIDES[at + 1] / SIDES[at])
    return len(SIDES) - 2, 1.0
