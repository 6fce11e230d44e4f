"""What this processor can do that the code of kernels hangs on."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """The flags that the system says it has; none where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def scales_in_vectors(kind: str, width: int) -> bool:
    """Whether one instruction multiplies such a vector by powers of two, and one bounds it without a word on NaN."""
    return (kind, width) in (("float", 16), ("double", 8)) and {"avx512f", "avx512dq"} <= features()
