"""Floating-point flags raised by a kernel: invalid operation, overflow, division by zero."""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache

import numpy as np

INVALID, OVERFLOW, DIVIDE = 1, 2, 4

_BUFFER_ELEMENTS = 1024
_FROM_NUMPY = {1: DIVIDE, 2: OVERFLOW, 8: INVALID}
# bits of <fenv.h> by architecture: invalid, divide, overflow
_FENV = {"x86_64": (1, 4, 8), "amd64": (1, 4, 8), "aarch64": (1, 2, 4), "arm64": (1, 2, 4)}


def fp_flags(word: int, flags: tuple[int, int, int] = _FENV["x86_64"]) -> int:
    """Translate a status word of the unit to INVALID, DIVIDE and OVERFLOW.

    ``flags``: the unit's bits for invalid, division and overflow. x86's status register has the bits of its <fenv.h>.
    """
    return sum(bit for flag, bit in zip(flags, (INVALID, DIVIDE, OVERFLOW), strict=True) if word & flag)


# The flags of x86's status word that are reported.
REPORTED = sum(1 << bit for bit in range(6) if fp_flags(1 << bit))


class StatusLog:
    """Collects the errors that NumPy reports; NumPy clears and reads the unit's flags at each operation."""

    __slots__ = ("bits",)

    def __init__(self) -> None:
        self.bits = 0

    def __call__(self, _kind: str, flag: int) -> None:
        """Add the conditions that NumPy reports."""
        for numpy_bit, bit in _FROM_NUMPY.items():
            if flag & numpy_bit:
                self.bits |= bit


class Listening(np.errstate):
    """A context in which NumPy reports errors to a log alone and takes small buffers; restores both.

    NumPy sets up buffers for operands that are not contiguous even where it does not use them: 32 KiB each by default,
    more than the rest of a call takes. With 1024 elements it is also a little faster.
    """

    def __init__(self, log: StatusLog) -> None:
        super().__init__(divide="call", over="call", invalid="call", under="ignore", call=log)

    def __enter__(self) -> None:
        """Report errors to the log, and take small buffers."""
        super().__enter__()
        np.setbufsize(_BUFFER_ELEMENTS)


def recording_numpy_errors(log: StatusLog) -> np.errstate:
    """Return a context in which NumPy reports floating-point errors to ``log``."""
    return Listening(log)


class Unit:
    """The calling thread's sticky floating-point flags, for code that NumPy does not check.

    Without libm it reports nothing.
    """

    __slots__ = ("_clear", "_mask", "_table", "_test")

    def __init__(self) -> None:
        bits = _FENV.get(platform.machine().lower())
        self._mask = 0
        if bits is None:
            return
        libm = ctypes.PyDLL(None)  # Python itself is linked with libm
        self._clear, self._test = libm.feclearexcept, libm.fetestexcept
        self._clear.argtypes = self._test.argtypes = [ctypes.c_int]
        self._mask = sum(bits)
        self._table = tuple(fp_flags(word, bits) for word in range(self._mask + 1))

    def clear(self) -> None:
        """Clear the flags."""
        if self._mask:
            self._clear(self._mask)

    def read(self) -> int:
        """Return the flags raised since ``clear``."""
        return self._table[self._test(self._mask)] if self._mask else 0


@lru_cache(maxsize=1)
def unit() -> Unit:
    """Return the floating-point unit; each thread has its own flags."""
    return Unit()
