"""Runs by the device that another is put in the place of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from einturnip import pipeline
from einturnip.devices import choice
from einturnip.devices.protocol import Device
from einturnip.devices.simulated import SimulatedDevice

from .fake_cuda import FakeCalls, FakedDevice

Opened = Callable[[Sequence[float]], list[FakeCalls]]


def paced(delays: Sequence[float]) -> Callable[[float], float]:
    """Planned seconds do not count: work takes the delays, one after the other, round and round."""
    taken = [0]

    def pace(seconds: float) -> float:
        taken[0] += 1
        return delays[taken[0] % len(delays)]

    return pace


def put(monkeypatch: pytest.MonkeyPatch, kind: str, delays: Sequence[float]) -> list[FakeCalls]:
    """Have every run on a device be one on the simulated device, or on the fake's, with these delays."""
    made: list[FakeCalls] = []

    def opened(chosen: choice.Chosen, arena: int, pinned: int) -> Device:
        if kind == "sim":
            return SimulatedDevice(chosen.name, arena, pinned, paced(delays))
        made.append(FakeCalls(paced(delays)))
        return FakedDevice(chosen.name, made[-1], arena, pinned, chosen.library)

    monkeypatch.setattr(pipeline, "open_device", opened)
    number = 0
    chosen = choice.Chosen("sim" if kind == "sim" else "cuda", number)
    monkeypatch.setattr(pipeline, "choose", lambda word: choice.Chosen() if word == "cpu" else chosen)
    monkeypatch.setattr(choice, "arena_nbytes", lambda chosen: 64 << 20)
    return made
