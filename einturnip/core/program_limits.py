"""Limits on the size of a program's source and of its expansion.

A program beyond a limit is refused before memory is allocated: files by their size, loops and calls by counting the
equations of their expansion (``lang/elaborate/expanded_size.py``, ``eingraph/build/program.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

MAX_FILE_NBYTES = 16 << 20
"""Bytes of a program, an imported file or a small configuration file."""
MAX_TOKENS = 1_000_000
"""Words and symbols of one program file. A token takes some 250 bytes until the file is parsed."""
MAX_TERMS = 300_000
"""Names, numbers and operators of a program, those of a function for each call; each takes 1 to 2 KB."""
MAX_STATEMENTS = 100_000
"""Equations of a program, those of a loop for each iteration; each takes 0.5 ms and 4 KB to plan."""

MAX_NODES = 300_000
"""Operations on tensors in the graph of equations and gradients, before simplification."""

MAX_TENSOR_NBYTES = (1 << 63) - 1
"""Bytes of a tensor, not counting empty axes, that 64-bit offsets can address, as in NumPy."""


def is_addressable(shape: Iterable[int], itemsize: int) -> bool:
    """True if offsets into a tensor of this shape, not counting empty axes, fit in 64 bits."""
    return math.prod(n for n in shape if n) * itemsize <= MAX_TENSOR_NBYTES
