"""Features of this processor that the generated code depends on."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """Return the processor's feature flags; empty if the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def scales_in_vectors(kind: str, width: int) -> bool:
    """Return whether single instructions scale by powers of two, and clamp without a flag for NaN."""
    return (kind, width) in (("float", 16), ("double", 8)) and {"avx512f", "avx512dq"} <= features()
