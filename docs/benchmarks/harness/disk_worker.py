"""One run out of core in a process of its own: ``python -m harness.disk_worker REQUEST`` (JSON).

It imports its modules, reports that, waits for a line, works from files to a file, and prints its seconds as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from harness.disk_cases import on_disk
from harness.disk_peers import PEERS, work


def main(request: dict[str, Any]) -> None:
    """Run the request once. The time ends when the result is on the disk."""
    case = next(c for c in on_disk(request["small"]) if c.name == request["case"])
    name, out, memory = request["contender"], Path(request["out"]), request["memory"]
    inputs = {tensor: Path(path) for tensor, path in request["inputs"].items()}
    call = work(name, case, inputs, out, memory)
    if call is None:
        say({"absent": True})
        return
    from importlib.metadata import version

    say({"version": version(PEERS.get(name, "einturnip"))})
    sys.stdin.readline()
    begin = time.perf_counter()
    try:
        call()
        flush(out)
    except Exception as error:  # any error of a peer is its result
        say({"error": f"{type(error).__name__}: {error}"[:200], "least": getattr(error, "needed", 0)})
        return
    say({"seconds": time.perf_counter() - begin})
    sys.stdin.readline()  # the parent inspects this process before it ends


def flush(out: Path) -> None:
    """Write a result that is in the page cache to the disk."""
    for path in [out] if out.is_file() else [p for p in out.rglob("*") if p.is_file()]:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def say(message: dict[str, Any]) -> None:
    """Print a message to the parent, as a line of JSON."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
