"""Measures the peak arithmetic rate of the cores, to state kernels as fractions of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from einturnip.devices.calibrate import seconds_in_parallel
from einturnip.ir.dtypes import DType
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.peak import Operations, PeakLoop

_ITERATIONS = 200_000  # of the loop in one call: one or two milliseconds


def measure_peak(operations: Operations, dtype: DType, workers: int) -> float:
    """Return the operations/s of ``workers`` cores together, on registers alone; 0 without machine code."""
    peak = PeakLoop(operations, dtype)
    code_cache.prepare([peak])
    function = code_cache.find(peak)
    if function is None:
        return 0.0

    def make(_: int) -> Callable[[], object]:
        vector = np.ones(peak.width, dtype.numpy)

        def run() -> None:
            vector.fill(1)
            function(words.ctypes.data)

        words = np.array([_ITERATIONS, vector.ctypes.data], np.int64)
        return run

    return workers * _ITERATIONS * peak.flops / min(seconds_in_parallel(make, workers, 0.005) for _ in range(10))
