"""Runs by the device that another is put in the place of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from einturnip.devices import kind as kinds
from einturnip.devices.kind import DeviceChoice
from einturnip.devices.protocol import Device
from einturnip.devices.simulated import SimulatedDevice
from einturnip.devices.streams import VirtualStreams
from tests.kernels.cuda.emulation import LaunchExecutor

from .fake_cuda import FakeCalls, FakedDevice

Opened = Callable[[Sequence[float]], list[FakeCalls]]


def paced(delays: Sequence[float]) -> Callable[[float], float]:
    """Planned seconds do not count: work takes the delays, one after the other, round and round."""
    taken = [0]

    def pace(seconds: float) -> float:
        taken[0] += 1
        return delays[taken[0] % len(delays)]

    return pace


def put(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    delays: Sequence[float],
    devices: int = 1,
    source: LaunchExecutor | None = None,
) -> list[FakeCalls]:
    """Have every run on a device be one on the simulated device, or on the fake's, or on several, with these delays.

    ``kind``: as in ``--device``; with ``+cpu``, a device has three times the rate of the CPU.
    """
    made: list[FakeCalls] = []
    kind = kind.partition("+")[0]

    def opened(chosen: DeviceChoice, arenas: Sequence[int], pinned: int) -> list[Device]:
        pace, found = paced(delays), list[Device]()
        streams = VirtualStreams(pace)
        for k, (name, arena) in enumerate(zip(chosen.names, arenas, strict=True)):
            if kind == "sim":
                found.append(SimulatedDevice(name, arena, 0 if k else pinned, streams, k))
            else:
                made.append(FakeCalls(pace, made[-1] if k else None, source))
                found.append(FakedDevice(name, made[-1], arena, 0 if k else pinned, chosen.library))
        return found

    device = kinds.find(kind)
    assert device is not None
    chosen = DeviceChoice(device, further=tuple(range(1, devices)))
    monkeypatch.setattr(device, "open", opened)
    monkeypatch.setattr(device, "choose", lambda numbers, option, word: chosen)
    monkeypatch.setattr(device, "arena_nbytes", lambda numbers: 64 << 20)
    monkeypatch.setattr(device, "product_flops", lambda chosen, host: [3 * host.gemm_flops * host.workers] * devices)
    return made
