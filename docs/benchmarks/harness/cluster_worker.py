"""One run of ``clusters.py`` in a process: ``python -m harness.cluster_worker REQUEST`` (JSON).

It starts the contender's workers, has them run a small case, reports their processes, waits for a line, works, and
prints its seconds as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from harness.cluster_cases import ClusterCase, on_workers
from harness.cluster_peers import PACKAGES, work, workers
from harness.disk_worker import flush, say


def main(request: dict[str, Any]) -> None:
    """Run the request once. The time ends when the result is on the disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # of workers, which warn at length
    case, warm_up = (_case(request["kind"], small) for small in (request["small"], True))
    name, memory, out = request["contender"], request["memory"], Path(request["out"])
    try:
        with workers(name, request["workers"], memory) as (there, processes):
            first = {tensor: Path(path) for tensor, path in request["small_inputs"].items()}
            work(name, warm_up, there, first, out.with_name("small-" + out.name), memory)()
            inputs = {tensor: Path(path) for tensor, path in request["inputs"].items()}
            call = work(name, case, there, inputs, out, memory)
            say({"version": _version(name), "processes": processes})
            sys.stdin.readline()
            begin = time.perf_counter()
            measured = call()
            flush(out)
            say({"seconds": time.perf_counter() - begin} | measured)
            sys.stdin.readline()  # the parent inspects the workers before they end
    except Exception as error:  # any error of a contender is its result
        say({"error": f"{type(error).__name__}: {error}"[:200]})


def _case(kind: str, small: bool) -> ClusterCase:
    return next(c for c in on_workers(small) if c.kind == kind)


def _version(name: str) -> str:
    from importlib.metadata import version

    return version("einturnip" if name == "einturnip" else PACKAGES[name])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
