"""Interrupts that come at a stated point of a call: where its thread makes its n-th call."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_made(function: Callable[[], Any], interrupted_at: int = 0) -> int:
    """Run a function and count the points at which Python looks for signals: calls, and returns from functions in C.

    ``interrupted_at``: the point at which the interrupt of a Ctrl-C comes.
    """
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_return"):
            count += 1
            if count == interrupted_at:
                sys.setprofile(None)
                _thread.interrupt_main()

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def interrupts(call: Callable[[], Any], times: int = 40) -> int:
    """Interrupt a function at points spread over its run, after runs that plan and compile; count the interrupts."""
    for _ in range(3):
        points = calls_made(call)
    interrupted = 0
    for k in range(times):
        try:
            calls_made(call, 1 + k * points // times)
        except KeyboardInterrupt:
            interrupted += 1
    return interrupted
