"""The CPU as a kind of device."""

from __future__ import annotations

from einturnip.cost.machine import Machine
from einturnip.devices.kind import DeviceChoice, DeviceKind


class CpuKind(DeviceKind):
    """The CPU: the threads of the process run the plan in its memory."""

    name = "cpu"
    max_devices = 0
    on_host = True

    def machine(self, host: Machine, chosen: DeviceChoice) -> Machine:
        """See DeviceKind."""
        return host


CPU = CpuKind()
ON_CPU = DeviceChoice(CPU)
