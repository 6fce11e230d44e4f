"""Counts instructions and bytes of typical kernels, by executing NVRTC's PTX; reads registers from machine code."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F16, F32, I64, DType
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.region import Region
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall
from einturnip.kernels.cuda import nvrtc
from einturnip.kernels.cuda.generate import generate, layout

from .. import regions
from .emulation import Emulator, view
from .ptx import INSTRUCTIONS

_SECTOR_NBYTES = 32
_MACHINE = "sm_90"


@dataclass(frozen=True)
class CountedKernel:
    """A call of a kernel. ``units``: the number of its multiply-adds, joins or elements, as ``unit`` says."""

    name: str
    space: Einsum | Region
    operands: tuple[np.ndarray, ...]
    unit: str
    units: int


@dataclass(frozen=True)
class KernelCount:
    """Costs of one unit of a kernel. ``sectors``: bytes of the sectors that its warps take of global memory."""

    instructions: float
    read: float
    written: float
    shared: float
    local: float
    sectors: float
    registers: int
    shared_nbytes: int


def registers(cubin: bytes) -> dict[str, int]:
    """Registers of a thread by kernel: attribute REGCOUNT of section ``.nv.info``, by symbol."""
    offset, (size, count, names) = struct.unpack_from("<Q", cubin, 40)[0], struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + n * size) for n in range(count)]

    def text(start: int) -> str:
        return cubin[start : cubin.index(b"\0", start)].decode()

    sections = {text(headers[names][4] + h[0]): h for h in headers}
    symbols, strings = sections[".symtab"], headers[sections[".symtab"][6]]
    at, end = sections[".nv.info"][4], sections[".nv.info"][4] + sections[".nv.info"][5]
    found = {}
    while at < end:
        form, attribute, nbytes = struct.unpack_from("<BBH", cubin, at)
        if (form, attribute) == (4, 0x2F):
            symbol, used = struct.unpack_from("<II", cubin, at + 4)
            found[text(strings[4] + struct.unpack_from("<I", cubin, symbols[4] + symbol * symbols[9])[0])] = used
        at += 4 + (nbytes if form == 4 else 0)
    return found


def counted(kernel: CountedKernel, scratch: Path) -> KernelCount:
    """Run a kernel once, and divide what it took by its units."""
    space, operands = kernel.space, [_aligned(x) for x in kernel.operands]
    out = _aligned(np.zeros(space.shape, space.dtype.numpy))
    views = [view(x) for x in operands], [view(out)]
    made = generate(space, "full", layout(space, "full", space.bounds, *views))
    emulator = Emulator([made], scratch, "traffic")
    emulator.counts()
    emulator.call(made, space.bounds, [out], operands, [0] * len(space.bounds))
    found = emulator.counts()
    grids = made.grids(tuple(space.bounds))
    used = registers(nvrtc.nvrtc().compile(made.source, _MACHINE))
    static = emulator.library.static_shared()
    instructions = sum(found[name] for name in INSTRUCTIONS)
    shared = found["shared_read"] + found["shared_written"]

    def share(n: int) -> float:
        return round(n / kernel.units, 2)

    return KernelCount(
        share(instructions),
        share(found["read"]),
        share(found["written"]),
        share(shared),
        share(found["local"]),
        share(found["sectors"] * _SECTOR_NBYTES),
        max(used[g.entry] for g in grids),
        static + max(g.shared_nbytes for g in grids),
    )


def _aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy that begins at a multiple of 256, as tiles of an arena do, so that sectors do not vary."""
    room = np.empty(array.nbytes + 256, np.uint8)
    copy = np.ndarray(array.shape, array.dtype, room, -room.ctypes.data % 256)
    copy[...] = array
    return copy


def _floats(dtype: DType, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype.numpy)


def _keys(n: int, below: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, n)


def _call(op: str, *arguments: Scalar, dtype: DType = F32) -> Scalar:
    return ScalarCall(op, arguments, dtype)


def _map(name: str, dtype: DType, join: Scalar, n_operands: int) -> CountedKernel:
    shape = 128, 512
    space = Einsum(tuple("ij"), shape, 2, ((0, 1),) * n_operands, (dtype,) * n_operands, join, None)
    return CountedKernel(name, space, (_floats(dtype, *shape),) * n_operands, "element", 128 * 512)


def _product(name: str, op: str, join: Scalar, dtype: DType = F32, unit: str = "join", k: int = 64) -> CountedKernel:
    """Rows by columns."""
    m, n = 128, 128
    space = Einsum(tuple("ijk"), (m, n, k), 2, ((0, 2), (2, 1)), (dtype, dtype), join, aggregation(op, dtype))
    return CountedKernel(name, space, (_floats(dtype, m, k), _floats(dtype, k, n)), unit, m * n * k)


def _sums(name: str, shape: tuple[int, int], access: tuple[int, int]) -> CountedKernel:
    bounds = shape[access.index(0)], shape[access.index(1)]
    space = Einsum(tuple("ij"), bounds, 1, (access,), (F32,), OperandRef(0, F32), aggregation("sum", F32))
    return CountedKernel(name, space, (_floats(F32, *shape),), "element", shape[0] * shape[1])


def _attention(name: str, dtype: DType, mask: str, rows: int) -> CountedKernel:
    heads, width = 2, 64
    made = regions.attention(np.random.default_rng(0), 1, heads, rows, rows, width, width, mask, dtype)
    return CountedKernel(name, made.region, tuple(made.operands), "multiply-add", heads * rows * rows * width * 2)


def _scatter(name: str, rows: int, groups: int, width: int) -> CountedKernel:
    keyed, keys = aggregation("sum", F32, keyed=True), (Key(0, OperandRef(1, I64)),)
    space = Einsum(
        tuple("udi"), (groups, width, rows), 2, ((2, 1), (2,)), (F32, I64), OperandRef(0, F32), keyed,
        ((rows, width), (rows,)), keys,
    )  # fmt: skip
    return CountedKernel(name, space, (_floats(F32, rows, width), _keys(rows, groups)), "element", rows * width)


def _gather(name: str, rows: int, table: int, width: int) -> CountedKernel:
    keys = (Key(2, OperandRef(1, I64)),)
    space = Einsum(
        tuple("sdv"), (rows, width, table), 2, ((2, 1), (0,)), (F32, I64), OperandRef(0, F32), aggregation("pick", F32),
        ((table, width), (rows,)), keys,
    )  # fmt: skip
    return CountedKernel(name, space, (_floats(F32, table, width), _keys(rows, table)), "element", rows * width)


def _transpose() -> CountedKernel:
    space = Einsum(tuple("ij"), (256, 256), 2, ((1, 0),), (F32,), OperandRef(0, F32), None)
    return CountedKernel("transpose f32", space, (_floats(F32, 256, 256),), "element", 256 * 256)


def _moments() -> CountedKernel:
    made = regions.moments(np.random.default_rng(0), 8, 16, 64)
    points = math.prod(made.region.bounds)
    return CountedKernel("moments of rows f64, fused", made.region, tuple(made.operands), "point", points)


_A, _B = OperandRef(0, F32), OperandRef(1, F32)
_HALF = OperandRef(0, F16), OperandRef(1, F16)
_GAP = _call("sub", _A, _B)

KERNELS: tuple[Callable[[], CountedKernel], ...] = (
    lambda: _map("a + b f32", F32, _call("add", _A, _B), 2),
    lambda: _map("silu(a) * b f16", F16, _call("mul", _call("silu", _HALF[0], dtype=F16), _HALF[1], dtype=F16), 2),
    _transpose,
    lambda: _sums("row sums f32", (64, 8192), (0, 1)),
    lambda: _sums("column sums f32", (8192, 64), (1, 0)),
    lambda: _product("max-plus f32", "max", _call("add", _A, _B)),
    lambda: _product("min-plus f32", "min", _call("add", _A, _B)),
    lambda: _product("squared distances f32", "sum", _call("mul", _GAP, _GAP)),
    lambda: _product("squared distances f32, long", "sum", _call("mul", _GAP, _GAP), k=320),
    lambda: _product("product f32, generated", "sum", _call("mul", _A, _B), unit="multiply-add"),
    lambda: _product("product f16, generated", "sum", _call("mul", *_HALF, dtype=F16), F16, "multiply-add"),
    lambda: _scatter("scatter-add f32, rows of 16", 8192, 1000, 16),
    lambda: _scatter("scatter-add f32, rows of 64", 4096, 500, 64),
    lambda: _gather("gather f32, rows of 16", 4096, 1000, 16),
    lambda: _gather("gather f32, rows of 64", 2048, 1000, 64),
    _moments,
    lambda: _attention("attention f32", F32, "", 128),
    lambda: _attention("attention f16", F16, "", 128),
    lambda: _attention("attention f32, causal", F32, "causal", 256),
)


def all_counts(scratch: Path) -> Iterator[tuple[CountedKernel, KernelCount]]:
    """Yield each kernel and its counts."""
    for kernel in (make() for make in KERNELS):
        yield kernel, counted(kernel, scratch)
