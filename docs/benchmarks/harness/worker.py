"""One contender in a process of its own: ``python -m harness.worker CASE CONTENDER SMALL``.

It prepares, warms up until everything that is compiled gradually has been compiled, and describes itself. Then it
answers each line with the seconds of one call, as JSON, and with a few elements of the last call's result, because
prepared state may go wrong later.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from harness.cases import BenchCase, in_memory
from harness.peers import Array, release, work

# Shorter calls are repeated, so that the resolution of the clock does not matter. Seconds.
LEAST_SECONDS = 0.02
# Seconds of warming up: einturnip compiles kernels that the calls so far show to be worth it.
WARM_SECONDS, LEAST_CALLS = 2.0, 2


def inputs(case: BenchCase) -> list[Array]:
    """The case's arrays: normal numbers, the same for every contender."""
    rng = np.random.default_rng(7)
    made: list[Array] = []
    for name, shape in case.shapes.items():
        if name in case.integers:
            made.append(rng.integers(0, case.integers[name], shape))
        else:
            made.append(rng.standard_normal(shape, np.float32))
    return made


def sample(result: Any) -> list[float]:
    """A few of the result's elements, from all over it, to compare contenders."""
    flat = np.asarray(result).reshape(-1)
    return [float(x) for x in flat[np.linspace(0, flat.size - 1, 64).astype(int)]]


def main(name: str, contender: str, small: str) -> None:
    """Serve one contender until the input ends."""
    case = next(c for c in in_memory(small == "1") if c.name == name)
    call = work(contender, case, inputs(case))
    if call is None:
        _say({"absent": True})
        return
    first = call()
    about = {"version": release(contender), "shape": list(np.shape(first)), "sample": sample(first)}
    del first
    took = _warm(call, 0.0 if small == "1" else WARM_SECONDS)
    repeats = max(1, round(LEAST_SECONDS / max(took, 1e-7)))
    _say(about)  # from here on it may be stopped, and time while stopped is no warming up
    for _ in sys.stdin:
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(repeats - 1):
            call()
        last = call()
        seconds, used = (time.perf_counter() - begin) / repeats, time.process_time() - used
        _say({"seconds": seconds, "used": used, "sample": sample(last)})
        del last


def _warm(call: Callable[[], Any], seconds: float) -> float:
    """Call for ``seconds``; returns the median seconds of a call in the later half."""
    began, took = time.perf_counter(), list[float]()
    while True:
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
        took.append(end - begin)
        if end - began >= seconds and len(took) >= LEAST_CALLS:
            return median(took[len(took) // 2 :])


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
