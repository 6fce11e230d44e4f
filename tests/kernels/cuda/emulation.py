"""The generated CUDA sources run on the host: the same text compiled as C++ over a header that plays the GPU."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from einturnip.core.package_data import folder
from einturnip.kernels.cuda.types import NOWHERE, STATUS_NBYTES, CudaKernel, DeviceTile, Launch

COMPILER = shutil.which("g++") or shutil.which("clang++")
_HERE = Path(__file__).parent
Work = Callable[[], None]
PATTERN = 0xA5
CONSTANT, EMPTY, VALUES = range(3)
"""Ranges of a call: operands; results and workspace without values; results that are added to."""
SHARED_NBYTES = 48 << 10
"""Shared memory of a block, static and dynamic, without an attribute of the function."""
PARAMETER_NBYTES = 4096
"""Parameters of a kernel, for all architectures."""


def view(array: np.ndarray) -> DeviceTile:
    """How an array lies."""
    return DeviceTile(array.strides, array.ctypes.data % 16 == 0)


def library(kernels: Iterable[CudaKernel], scratch: Path, checked: bool = False) -> ctypes.CDLL:
    """All these kernels in one shared library, each entry behind a function that launches it.

    ``checked``: with the checks of every access; see ``check_accesses.cpp``.
    """
    distinct = {k.name: k for k in kernels}
    text = (
        '#include "emulate.h"\n'
        + "\n".join(k.source for k in distinct.values())
        + '\nextern "C" size_t static_shared() { return emulate::static_shared(); }\n'
        + "\n".join(
            f"""
static {k.name}::Head head_{entry};
static {k.name}::Fixed fixed_{entry};
static void body_{entry}() {{ {entry}(head_{entry}, fixed_{entry}); }}
extern "C" int run_{entry}(
    const void* h, const void* g, const unsigned* grid, const unsigned* block, size_t shared, int falling) {{
  memcpy(&head_{entry}, h, sizeof head_{entry});
  memcpy(&fixed_{entry}, g, sizeof fixed_{entry});
  emulate::launch(grid, block, shared, falling, body_{entry});
  return emulate::diverged;
}}
extern "C" size_t sizes_{entry}() {{ return sizeof head_{entry} << 32 | sizeof fixed_{entry}; }}
"""
            for k in distinct.values()
            for entry in k.entries
        )
    )
    key = hashlib.sha256(text.encode()).hexdigest()[:16] + "c" * checked
    source, made = scratch / f"{key}.cpp", scratch / f"{key}.so"
    if not made.exists():
        source.write_text(text)
        assert COMPILER is not None
        flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fwrapv"]
        if checked:
            checks = scratch / "check_accesses.o"
            if not checks.exists():
                _compile(["-std=c++17", "-O2", "-c", "-fPIC", str(_HERE / "check_accesses.cpp"), "-o", str(checks)])
            # The object calls hooks of its own: neither libtsan nor libubsan is linked.
            flags[1:2] = ["-O1", "-fsanitize=thread,bounds", "-DEIN_CHECKED"]
        if COMPILER.endswith("g++") and not COMPILER.endswith("clang++"):
            flags.append("-fno-weak")  # shared variables of inline functions go to the same section
        include = [f"-I{_HERE}", f"-I{folder('kernels')}"]
        if checked:
            compiled = made.with_suffix(".o")
            _compile([*(f for f in flags if f != "-shared"), *include, "-c", str(source), "-o", str(compiled)])
            _compile(["-shared", "-Wl,-Bsymbolic", str(compiled), str(checks), "-ldl", "-o", str(made)])
        else:
            _compile([*flags, *include, str(source), "-o", str(made)])
    return ctypes.CDLL(str(made))


def ranges_of(
    kernel: CudaKernel, spans: Sequence[tuple[int, int, bool]], first: bool
) -> Iterator[tuple[int, int, int]]:
    """Ranges for the checks. ``spans``: begin, end and whether it is written, of each array; the last is the status."""
    results = VALUES if kernel.mode in ("accumulate", "combine") and not first else EMPTY
    for begin, end, written in spans[:-1]:
        over = [(a, b) for a, b, other in spans if other != written and a < end and begin < b]
        # A result can be stored over an operand.
        yield begin, end, VALUES if over else results if written else CONSTANT
    yield (*spans[-1][:2], VALUES)


def _compile(arguments: list[str]) -> None:
    assert COMPILER is not None
    done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


class Emulator:
    """Calls of kernels of one library. ``checked``: every access is checked."""

    def __init__(self, kernels: Sequence[CudaKernel], scratch: Path, checked: bool = False) -> None:
        self.library, self.checked = library(kernels, scratch, checked), checked
        if checked:
            self.library.check_faults.restype = ctypes.c_char_p

    def begin_call(self, call: int, ranges: Sequence[tuple[int, int, int]]) -> None:
        """State the memory of a call: begin, end, and kind (CONSTANT, EMPTY, VALUES) of each range."""
        columns = [(ctypes.c_int64 * len(ranges))(*column) for column in zip(*ranges, strict=True)]
        self.library.check_begin_call(ctypes.c_int64(call), ctypes.c_int64(len(ranges)), *columns)

    def select_call(self, call: int) -> None:
        """The launches that follow belong to this call."""
        self.library.check_select_call(ctypes.c_int64(call))

    def end_call(self, call: int) -> None:
        """Forget a call."""
        self.library.check_end_call(ctypes.c_int64(call))

    def launch(self, launch: Launch, head: bytes, falling: bool) -> None:
        """One launch."""
        sizes = getattr(self.library, f"sizes_{launch.entry}")
        sizes.restype = ctypes.c_size_t
        assert sizes() == len(head) << 32 | len(launch.fixed)
        run = getattr(self.library, f"run_{launch.entry}")
        dims = [(ctypes.c_uint * 3)(*d) for d in (launch.grid, launch.block)]
        diverged = run(head, launch.fixed, *dims, ctypes.c_size_t(launch.shared_nbytes), int(falling))
        assert not diverged, "some threads of a block wait at a barrier that others never reach"
        if self.checked:
            faults = self.library.check_faults().decode()
            assert not faults, faults

    def call(
        self,
        kernel: CudaKernel,
        extents: Sequence[int],
        outs: Sequence[np.ndarray],
        operands: Sequence[np.ndarray],
        origins: Sequence[int],
        first: bool = True,
        falling: bool = False,
    ) -> np.ndarray:
        """One call; gives the status words. The workspace is of exactly the stated size, its end is watched."""
        extents = tuple(extents)
        nbytes = kernel.workspace_nbytes(extents)
        room = np.full(nbytes + 512, PATTERN, np.uint8)
        start = -room.ctypes.data % 256
        status = np.array([0] + [NOWHERE] * (STATUS_NBYTES // 8 - 1), np.int64)
        launches = kernel.launches(extents, [view(x) for x in operands], [view(x) for x in outs])
        head = kernel.head(
            extents,
            [x.ctypes.data for x in outs],
            [x.ctypes.data for x in operands],
            origins,
            first,
            room.ctypes.data + start,
            status.ctypes.data,
        )
        if self.checked:
            spans = [(*np.lib.array_utils.byte_bounds(x), False) for x in operands if x.size]
            spans += [(*np.lib.array_utils.byte_bounds(x), True) for x in outs if x.size]
            spans += [(*np.lib.array_utils.byte_bounds(status), True)]
            workspace = room.ctypes.data + start
            self.end_call(0)
            self.begin_call(0, [*ranges_of(kernel, spans, first), (workspace, workspace + nbytes, EMPTY)])
            self.select_call(0)
        for one in launches:
            self.launch(one, head, falling)
        assert (room[start + nbytes :] == PATTERN).all()
        told = kernel.explained(launches)
        if status[1] != NOWHERE and told is not None:
            self.launch(told, head, falling)
        return status


class DecodedCall(Protocol):
    """A call as the bytes of its parameters say it. ``accesses``: begin, end, written; the status comes last.

    ``workspace_word``: the word of ``head`` that is the workspace's address.
    """

    head: bytes
    extents: Sequence[int]
    first: bool
    workspace_word: int
    accesses: list[tuple[int, int, bool]]


class SourceExecutor:
    """Runs the launches of a device by the kernels' own sources, each compiled once.

    A call gets a workspace of exactly the stated size, filled with a pattern that must still surround it afterwards.
    ``checked``: every access is checked.
    """

    def __init__(self, scratch: Path, checked: bool = False) -> None:
        self.scratch, self.checked, self.launches = scratch, checked, 0
        self._emulators: dict[str, Emulator] = {}
        self._workspaces: dict[int, tuple[bytes, np.ndarray]] = {}

    def prepared(self, kernel: CudaKernel, launch: Launch, call: DecodedCall, stream: int) -> Work:
        """A launch of a call, within the limits of a GPU."""
        emulator = self._emulators.get(kernel.name)
        if emulator is None:
            emulator = self._emulators[kernel.name] = Emulator([kernel], self.scratch, self.checked)
        assert emulator.library.static_shared() + launch.shared_nbytes <= SHARED_NBYTES, (
            "more shared memory than there is"
        )
        head, at, nbytes = call.head, call.workspace_word, kernel.workspace_nbytes(tuple(call.extents))
        assert len(head) + len(launch.fixed) <= PARAMETER_NBYTES
        of, room = self._workspaces.get(stream, (b"", np.empty(0, np.uint8)))
        if of is not head:  # the launches of a call share it
            room = np.full(nbytes + 512, PATTERN, np.uint8)
            self._workspaces[stream] = head, room
        start = -room.ctypes.data % 256
        words = np.frombuffer(head, np.int64).copy()
        assert not words[at] % 256
        words[at] = room.ctypes.data + start
        self.launches += 1
        falling, place = bool(self.launches % 2), int(words[at])
        is_first = of is not head

        def run() -> None:
            if self.checked:
                if is_first:
                    emulator.end_call(stream)
                    ranges = ranges_of(kernel, call.accesses, call.first)
                    emulator.begin_call(stream, [*ranges, (place, place + nbytes, EMPTY)])
                emulator.select_call(stream)
            emulator.launch(launch, words.tobytes(), falling)
            outside = room[:start], room[start + nbytes :]
            assert all((x == PATTERN).all() for x in outside), f"{launch.entry} writes outside its workspace"

        return run


@lru_cache(maxsize=1)
def why_not() -> str:
    """Why kernels cannot be emulated here; empty where they can."""
    return "" if COMPILER else "no C++ compiler (g++ or clang++) on the path"
