"""Checks a device: a kernel of each kind against the host's, copies, and the order of streams.

The device's memory holds the operands and the result of one kernel at a time. A wrong answer is an error before any
data of the user is read, with the kernel's name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from einturnip.core.errors import DeviceError
from einturnip.devices.kind import DeviceChoice
from einturnip.devices.protocol import Array, Device, DeviceKernelCall, Stream, as_bytes
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F32, I64
from einturnip.ir.einsum import Access, Einsum, Key
from einturnip.ir.region import Region, RegionStep, Rescale
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall
from einturnip.kernels.select import compile_kernel

ARENA_NBYTES, PINNED_NBYTES = 1 << 20, 1 << 19
_MAX_SECONDS = 60.0  # for one kernel, its compilation included
_ALIGNMENT = 256
_TOLERANCE = 1e-4
_A, _B = OperandRef(0, F32), OperandRef(1, F32)


@dataclass(frozen=True)
class SelfTestKernel:
    """A kernel and its operands."""

    name: str
    space: Einsum | Region
    operands: tuple[Array, ...]


def self_test(choice: DeviceChoice) -> str:
    """Open the devices and check each; return a sentence that says what was checked.

    Raises:
        DeviceError: a device cannot be opened, or something is wrong; the message says what.
    """
    if choice.kind.on_host:
        return "nothing to test: kernels run in threads of the process"
    begin, kernels = time.perf_counter(), list(_kernels())
    devices = choice.kind.open(choice, [ARENA_NBYTES] * len(choice.numbers), PINNED_NBYTES * len(choice.numbers))
    try:
        for device in devices:
            check_device(device, devices[0].pinned, kernels, choice)
    finally:
        for device in devices:
            device.close()
    seconds = time.perf_counter() - begin
    names = ", ".join(kernel.name for kernel in kernels)
    return f"passed in {seconds:.1f} s: copies each way, streams that wait for each other, and kernels ({names})"


def check_device(device: Device, pinned: Array, kernels: Sequence[SelfTestKernel], choice: DeviceChoice) -> None:
    """Run each kernel on a device and compare its result with the host's.

    Raises:
        DeviceError: results differ, or work does not end.
    """
    device.use()
    for kernel in kernels:
        try:
            found = _on_device(device, pinned, kernel, choice)
        except RuntimeError as error:  # CuPy's errors are RuntimeErrors
            raise DeviceError(f"{device.name}: the self-test's {kernel.name} fails: {error}. {_HELP}") from error
        expected = _on_host(kernel)
        if not np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            wrong = int(np.sum(~np.isclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)))
            raise DeviceError(
                f"{device.name}: the self-test's {kernel.name} gives {wrong} wrong of {expected.size} values. {_HELP}"
            )


_HELP = "help: run with --device cpu, and report it with the output of einturnip doctor"


def _on_device(device: Device, pinned: Array, kernel: SelfTestKernel, choice: DeviceChoice) -> Array:
    """Return a kernel's result; its copies and the kernel are on streams that wait for each other."""
    space, extents = kernel.space, tuple(kernel.space.bounds)
    used = 0

    def place(shape: Sequence[int], dtype: np.dtype) -> tuple[Array, Array]:
        """Return the next array of the arena, and as many pinned bytes."""
        nonlocal used
        array = device.places.array(used, shape, dtype)
        staged = pinned[used : used + array.nbytes]
        used += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return array, staged

    tiles = []
    for operand in kernel.operands:
        tile, staged = place(operand.shape, operand.dtype)
        staged[:] = as_bytes(operand)
        device.copy_in(Stream.IN, as_bytes(tile), staged, 0.0)
        tiles.append(tile)
    dtype = np.dtype(space.dtype.numpy)
    out, back = place(space.shape, dtype)
    workspace, _ = place((choice.kind.workspace_nbytes(space, extents, "full", False),), np.dtype(np.uint8))
    device.follow(Stream.COMPUTE, device.mark(Stream.IN))
    work = DeviceKernelCall(space, extents, "full", (out,), tuple(tiles), (0,) * len(extents), True, workspace)
    device.kernel(Stream.COMPUTE, work, 0, 0.0)
    device.follow(Stream.OUT, device.mark(Stream.COMPUTE))
    back[:] = 0xFF
    device.copy_out(Stream.OUT, back, as_bytes(out), 0.0)
    last, limit = device.mark(Stream.OUT), time.perf_counter() + _MAX_SECONDS
    while device.ended(last) is None:
        if time.perf_counter() > limit:
            raise DeviceError(f"{device.name}: the self-test's {kernel.name} does not end. {_HELP}")
        device.idle(1e-3)
    device.fp_flags(0)
    return back.copy().view(dtype).reshape(space.shape)


def _on_host(kernel: SelfTestKernel) -> Array:
    space, extents = kernel.space, tuple(kernel.space.bounds)
    host, out = compile_kernel(space, extents, "full"), np.zeros(space.shape, space.dtype.numpy)
    room = np.empty(host.workspace_nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    host((out,), kernel.operands, (0,) * len(extents), True, room[start : start + host.workspace_nbytes])
    return out


def _kernels() -> Iterator[SelfTestKernel]:
    """Yield a kernel of each kind, with sizes that blocks of threads do not divide."""
    m, n, k = 70, 45, 37
    a, b, tall = _floats(m, k), _floats(k, n), _floats(900, 9)
    yield SelfTestKernel("map", _einsum((m, k), 2, [(0, 1), (0, 1)], _call("add", _A, _B)), (a, a))
    yield SelfTestKernel("transpose", _einsum((k, m), 2, [(1, 0)], _A), (a,))
    yield SelfTestKernel("row sums", _einsum((m, k), 1, [(0, 1)], _A, "sum"), (a,))
    yield SelfTestKernel("column sums", _einsum((9, 900), 1, [(1, 0)], _A, "sum"), (tall,))
    yield SelfTestKernel("product", _einsum((m, n, k), 2, [(0, 2), (2, 1)], _call("mul", _A, _B), "sum"), (a, b))
    yield SelfTestKernel("max-plus", _einsum((m, n, k), 2, [(0, 2), (2, 1)], _call("add", _A, _B), "max"), (a, b))
    ids = np.random.default_rng(1).integers(0, 50, 1500)
    rows, key = _floats(1500, 12), OperandRef(1, I64)
    scatter = Einsum(
        ("u", "d", "i"), (50, 12, 1500), 2, ((2, 1), (2,)), (F32, I64), _A, aggregation("sum", F32, keyed=True),
        ((1500, 12), (1500,)), (Key(0, key),),
    )  # fmt: skip
    yield SelfTestKernel("scatter", scatter, (rows, ids))
    gather = Einsum(
        ("s", "d", "v"), (1500, 12, 50), 2, ((2, 1), (0,)), (F32, I64), _A, aggregation("pick", F32),
        ((50, 12), (1500,)), (Key(2, key),),
    )  # fmt: skip
    yield SelfTestKernel("gather", gather, (rows[:50].copy(), ids))
    yield SelfTestKernel("fused region", _log_sum_exp(m, k), (a,))


def _log_sum_exp(m: int, k: int) -> Region:
    """The logarithm of sums of exponentials of rows, with the maximum so far taken off."""
    top, weight, total = ~0, ~1, ~2
    steps = (
        RegionStep(_einsum((m, k), 1, [(0, 1)], _A, "max"), (0, 1), (0,)),
        RegionStep(_einsum((m, k), 2, [(0, 1), (0,)], _call("exp", _call("sub", _A, _B))), (0, 1), (0, top)),
        RegionStep(_einsum((m, k), 1, [(0, 1)], _A, "sum"), (0, 1), (weight,)),
        RegionStep(_einsum((m,), 1, [(0,), (0,)], _call("add", _call("log", _A), _B)), (0,), (total, top)),
    )
    return Region(("i", "j"), (m, k), 1, 1, ((0, 1),), (F32,), steps, (Rescale(2, 0, -1.0),))


def _floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _call(op: str, *arguments: Scalar) -> Scalar:
    return ScalarCall(op, arguments, F32)


def _einsum(bounds: tuple[int, ...], n_out: int, accesses: list[Access], join: Scalar, op: str = "") -> Einsum:
    labels = tuple("ijk"[: len(bounds)])
    summed = aggregation(op, F32) if op else None
    return Einsum(labels, bounds, n_out, tuple(accesses), (F32,) * len(accesses), join, summed)
