"""The errors that einturnip raises to its users, with their exit codes on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from einturnip.core.diagnostics import Diagnostic


class EinturnipError(Exception):
    """Base of all errors that a user can fix: in the program, its inputs, the budget, the machine."""

    exit_code = 1


class SourceError(EinturnipError):
    """The program has errors. Holds every diagnostic of the failed stage, not only the first."""

    exit_code = 2

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        from einturnip.core.diagnostics import render_all

        super().__init__(render_all(self.diagnostics))


class BindError(EinturnipError, ValueError):
    """An input, a size or an option does not fit the program. Also a ValueError, as in NumPy.

    Holds the diagnostics from which the message was made, if they point into the program.
    """

    exit_code = 2

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)


class DTypeError(BindError, TypeError):
    """A value from outside has an unsupported type or element type."""


class StoreError(EinturnipError):
    """A file is truncated, unreadable, of the wrong kind, or its disk is full."""

    exit_code = 1


class CapacityError(EinturnipError):
    """The program does not fit. ``needed`` is the minimum budget in bytes (0: unknown)."""

    exit_code = 3

    def __init__(self, message: str, needed: int = 0) -> None:
        super().__init__(message)
        self.needed = needed


class NeedsMore(CapacityError):
    """Planning stopped at the memory limit; ``needed`` is a lower bound of the minimum budget."""


class TooLarge(CapacityError):
    """The construction of a graph was stopped, because its cost exceeds the given limit.

    ``made``: number of nodes built so far; ``done``: number of kernel calls or tasks that they cover.
    """

    def __init__(self, message: str, made: int = 0, done: int = 0) -> None:
        super().__init__(message)
        self.made, self.done = made, done


class DeviceError(EinturnipError):
    """A device is absent or failed; the message says why and what to do."""

    exit_code = 1


class RunError(EinturnipError):
    """A run stopped: an error inside a kernel or a transfer, with the statement it arose in."""

    exit_code = 1


class WorkerLost(RunError):
    """A worker of a run on a cluster is gone; others can run the program again.

    ``reason``: a sentence; ``attempts``: how many times the program has been run.
    """

    def __init__(self, reason: str, attempts: int = 1) -> None:
        self.reason = reason
        tried = f" Each of {attempts} attempts (--retries {attempts - 1}) has lost a worker." if attempts > 1 else ""
        help_text = (
            "find out why workers end, then run again"
            if attempts > 1
            else ("run again; --retries 1 or retries=1 does that")
        )
        super().__init__(f"{reason}{tried} Nothing was written. help: {help_text}")


_FROM_NAN = (-(1 << 63), -(1 << 31))


class OutOfRange(RunError):
    """A data-dependent index ``value`` is outside its axis of length ``size``.

    ``label`` names the axis; ``point`` gives the (label, index) pairs of the point that uses it. A kernel raises the
    error; the run adds the tensor, the elements from which the index was computed, and the statement.
    """

    def __init__(self, value: int, size: int, label: str, point: Sequence[tuple[str, int]] = ()) -> None:
        self.value, self.size, self.label, self.point = value, size, label, tuple(point)
        super().__init__(self._message())

    def locate(self, axis: str, sources: Sequence[str]) -> None:
        """Name the axis in words, and the elements that the index was computed from, such as ``k[37]``."""
        self.args = (self._message(axis, sources),)

    def _message(self, axis: str = "", sources: Sequence[str] = ()) -> str:
        at = ", ".join(f"{name} = {index}" for name, index in self.point)
        where = f" at {at}" if at else ""
        named = f", {axis}" if axis else ""
        outside = f"0 .. {self.size - 1}{named}" if self.size else f"{axis or 'its axis'}: empty axis"
        read = f", from {' and '.join(sources)}," if sources else ""
        cast = "; NaN and infinity become this number as integers" if self.value in _FROM_NAN else ""
        return f"index {self.value}{where}{read} is outside {outside}{cast}"


class Interrupted(EinturnipError):
    """The user asked the run to stop (SIGINT or SIGTERM)."""

    exit_code = 130


class InternalError(Exception):
    """A bug in einturnip, never the user's fault. Deliberately not an EinturnipError."""

    def __init__(self, message: str) -> None:
        super().__init__(f"internal error: {message}. This is a bug in einturnip; please report it.")
