"""What a machine can do: the rates that plans are priced with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of one machine. The defaults are a small server's; ``doctor`` measures the real ones.

    Units: flops in 1/s per worker, bandwidths in bytes/s, latencies in seconds.
    """

    workers: int = 2
    gemm_flops: float = 1.0e11
    scalar_flops: float = 6.0e8
    memory_bandwidth: float = 1.0e10
    read_bandwidth: float = 1.0e9
    write_bandwidth: float = 1.2e9
    op_latency: float = 6.0e-5
    run_latency: float = 1.5e-6
    compute: str = "cpu:0"
