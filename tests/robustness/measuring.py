"""Measures the memory of a command line from outside: its processes, and the pages that it leaves cached."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from einturnip.core.units import parse_size
from tests.robustness.programs import ENVIRONMENT

# The command line, and then the most that was resident, which a process knows best itself.
MEASURED = """
import sys
from einturnip.cli.main import run
code = run(sys.argv[1:])
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
sys.exit(code)
"""
SAMPLED = 0.02  # seconds from one look at the processes to the next
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Measured:
    """How a run ended, and its peak in bytes."""

    code: int
    peak: int
    error: str

    @property
    def least(self) -> int:
        """The budget that a refusal names."""
        found = re.search(r"the minimum is ([\d.]+ \w+)", self.error)
        assert found, self.error
        return parse_size(found[1])

    @property
    def above(self) -> int | None:
        """The budget that the program needs at least; None if the refusal names the minimum."""
        found = re.search(r"the program needs at least ([\d.]+ \w+)", self.error)
        return parse_size(found[1]) if found else None


def measured(folder: Path, memory: int | str, *arguments: str, cache: Path | None = None) -> Measured:
    """Run ``p.ein`` of a folder; the peak of its processes, and the pages of the folder's files that it left cached."""
    line = [sys.executable, "-c", MEASURED, "run", "p.ein", "--memory", str(memory), "--spill", ".", "--quiet"]
    environment = ENVIRONMENT if cache is None else ENVIRONMENT | {"XDG_CACHE_HOME": str(cache), "EINTURNIP_PLANS": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*line, *arguments], cwd=folder, env=environment, **pipes) as process:
        ended, sampled = threading.Event(), [0]

        def sample() -> None:
            while not ended.wait(SAMPLED):
                sampled.append(max(sampled.pop(), tree_nbytes(process.pid)))

        watch = threading.Thread(target=sample)
        watch.start()
        try:
            out, error = process.communicate()
        finally:
            process.kill()
            ended.set()
            watch.join()
    highest = int(out.split()[-1]) << 10
    cached = sum(cached_nbytes(path) for path in folder.rglob("*") if path.is_file())
    return Measured(process.returncode, max(highest, *sampled) + cached, error)


def refused(folder: Path, limit: int, *arguments: str, cache: Path | None = None) -> Measured:
    """Run in ``limit`` bytes, and in the bounds that refusals name until one names the minimum, or the program runs.

    No run takes more than its limit, and a bound is above the limit that it answers.
    """
    while True:
        evict(folder)
        found = measured(folder, limit, *arguments, cache=cache)
        assert found.code in (0, 3), found.error
        assert found.peak <= limit, (found, limit)
        if found.code == 0 or found.above is None:
            return found
        assert found.above > limit, found
        limit = found.above


def tree_nbytes(root: int) -> int:
    """Resident bytes of a process and of all that it has started.

    Between fork and exec a child is its parent in another name: the same pages, and the same command line. Counted
    twice, they were 108 MiB of a process that never had more than 74.
    """
    found, left = 0, [(root, b"")]
    while left:
        number, parents = left.pop()
        try:
            line = Path(f"/proc/{number}/cmdline").read_bytes()
            if line == parents:
                continue
            found += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * mmap.PAGESIZE
            for task in Path(f"/proc/{number}/task").iterdir():
                left += [(int(child), line) for child in (task / "children").read_text().split()]
        except (OSError, IndexError):
            continue  # it has just ended
    return found


def cached_nbytes(path: Path) -> int:
    """Bytes of a file in the page cache, by mincore."""
    fd = os.open(path, os.O_RDONLY)
    try:
        nbytes = os.fstat(fd).st_size
        if not nbytes:
            return 0
        with mmap.mmap(fd, nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as held:
            pages = -(-nbytes // mmap.PAGESIZE)
            resident = (ctypes.c_ubyte * pages)()
            address = ctypes.addressof(ctypes.c_char.from_buffer(held))
            assert _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), resident) == 0
            return sum(b & 1 for b in bytes(resident)) * mmap.PAGESIZE
    finally:
        os.close(fd)


def evict(folder: Path) -> None:
    """Let all files of a folder leave the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
