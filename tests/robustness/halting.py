"""A command line in a process of its own that halts inside a kernel, so that a test knows where a signal meets it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

from tests.robustness.programs import start

# The child prints lines: "halted" inside the first kernels, "heeded" after each signal that its handler
# took, "kernel" for each kernel that begins later. Kernels halt until nobody holds the other end of the pipe ``go``.
_CHILD = """
import os, select, sys
from einturnip.cli import entry, process
from einturnip.kernels.protocol import PythonCall
from einturnip.runtime.host import executor as calls

say, go, heeded = int(sys.argv.pop(1)), int(sys.argv.pop(1)), []
compile_kernel, take = calls.compile_kernel, process.StopRequest.__call__

class Halting:
    def __init__(self, *arguments, **options):
        self.kernel = compile_kernel(*arguments, **options)

    def prepare(self, operands):
        return PythonCall(lambda: self.call(operands))

    def call(self, operands):
        if heeded:
            os.write(say, b"kernel\\n")
        else:
            os.write(say, b"halted\\n")
            select.select([go], [], [])
        return self.kernel.prepare(operands).run()

def noted(stop, number, frame):
    heeded.append(number)
    try:
        take(stop, number, frame)
    finally:
        os.write(say, b"heeded\\n")

calls.compile_kernel, process.StopRequest.__call__ = Halting, noted
sys.argv[0] = "einturnip"
entry.main()
"""


class Halted:
    """A run whose first kernels wait inside for ``ended``."""

    def __init__(self, arguments: tuple[Any, ...], cwd: Path, options: dict[str, Any]) -> None:
        said, say = os.pipe()
        go, self._hold = os.pipe()
        line = [sys.executable, "-c", _CHILD, str(say), str(go), *map(str, arguments)]
        self.process = start(line, cwd, pass_fds=(say, go), **options)
        os.close(say)
        os.close(go)
        self._said = os.fdopen(said)
        self._kernels = 0
        first = self._said.readline()
        assert first == "halted\n", self.process.communicate()

    def signal(self, number: int) -> None:
        """Send a signal and wait until its handler took it."""
        self.process.send_signal(number)
        while (line := self._said.readline()) != "heeded\n":
            assert line in ("halted\n", "kernel\n"), line  # another thread's op, which was handed out before
            self._kernels += line == "kernel\n"

    def release(self) -> None:
        """Let kernels run on."""
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1

    def ended(self) -> tuple[int, str, int]:
        """Exit code and standard error of the run, and the number of kernels that began after a signal."""
        self.release()
        _, error = self.process.communicate()
        return self.process.returncode, error, self._kernels + self._said.read().split().count("kernel")

    def close(self) -> None:
        self.process.kill()
        self.release()
        self.process.communicate()
        self._said.close()


@contextmanager
def halted(*arguments: Any, cwd: Path, **options: Any) -> Iterator[Halted]:
    """``einturnip ARGUMENTS``, halted inside its first kernels; killed at the end if it is still there."""
    run = Halted(arguments, cwd, {"stdout": PIPE, "stderr": PIPE} | options)
    try:
        yield run
    finally:
        run.close()
