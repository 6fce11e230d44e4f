"""The generated CUDA sources run on the host: as C++ over a header that plays the GPU, or NVRTC's PTX as C++."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from einturnip.core.package_data import folder
from einturnip.kernels.cuda import nvrtc
from einturnip.kernels.cuda.types import NOWHERE, STATUS_NBYTES, CudaKernel, DeviceTile, Launch

from .ptx import COUNTERS, translated

COMPILER = shutil.which("g++") or shutil.which("clang++")
_HERE = Path(__file__).parent
Form = Literal["source", "checked", "ptx", "traffic"]
"""The text to compile: the source; the source with a check of every access (``check_accesses.cpp``); NVRTC's PTX; PTX
that also counts the sectors of global memory that warps take."""
PTX_TARGET = "compute_80"
Work = Callable[[], None]
PATTERN = 0xA5
CONSTANT, EMPTY, VALUES = range(3)
"""Ranges of a call: operands; results and workspace without values; results that are added to."""
SHARED_NBYTES = 48 << 10
"""Shared memory of a block, static and dynamic, without an attribute of the function."""
PARAMETER_NBYTES = 4096
"""Parameters of a kernel, for all architectures."""


def view(array: np.ndarray) -> DeviceTile:
    """Return the strides, the alignment and the span of an array."""
    span = sum((n - 1) * abs(stride) for n, stride in zip(array.shape, array.strides, strict=True))
    return DeviceTile(array.strides, array.ctypes.data % 16 == 0, span)


def library(kernels: Iterable[CudaKernel], scratch: Path, form: Form = "source") -> ctypes.CDLL:
    """All these kernels in one shared library, each entry behind a function that launches it.

    It is compiled once for a text; processes can share ``scratch``.
    """
    distinct = {k.name: k for k in kernels}.values()
    used = [*sorted(_HERE.glob("*.h")), *sorted(_HERE.glob("ptx*.py")), *sorted(folder("kernels").glob("*.cuh"))]
    texts = [k.source for k in distinct] + [path.read_text() for path in (*used, Path(__file__))]
    key = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    made = scratch / f"{key}-{form}.so"
    if not made.exists():
        source = scratch / f"{key}-{form}-{os.getpid()}.cpp"
        runners = [_runner(k, entry, form) for k in distinct for entry in k.entries]
        source.write_text("\n".join([_HEAD[form], *(_definitions(k, form) for k in distinct), *runners]))
        unfinished = source.with_suffix(".so")
        _build(source, unfinished, form)
        unfinished.replace(made)
    return ctypes.CDLL(str(made))


_SOURCE_HEAD = """#include "emulate.h"
extern "C" size_t static_shared() { return emulate::static_shared(); }
"""
_PTX_HEAD = """#include "ptx.h"
static size_t most_shared;
extern "C" size_t static_shared() { return most_shared; }
extern "C" void read_counts(uint64_t* to) {
  memcpy(to, ptx::counts, sizeof ptx::counts);
  memset(ptx::counts, 0, sizeof ptx::counts);
}
"""
_HEAD = {
    "source": _SOURCE_HEAD,
    "checked": _SOURCE_HEAD,
    "ptx": _PTX_HEAD,
    "traffic": "#define EIN_TRAFFIC\n" + _PTX_HEAD,
}


def _definitions(kernel: CudaKernel, form: Form) -> str:
    """Return the kernel's functions in C++."""
    if form in ("source", "checked"):
        return kernel.source
    text = nvrtc.nvrtc().compile(kernel.source, PTX_TARGET).rstrip(b"\0").decode()
    name = f"ptx::{kernel.name}"
    return f"""namespace ptx {{ namespace {kernel.name} {{
{translated(text)}
static const bool noted = most_shared < STATIC_SHARED && (most_shared = STATIC_SHARED);
}} }}
namespace {kernel.name} {{ using namespace {name}; }}
"""


def _runner(kernel: CudaKernel, entry: str, form: Form) -> str:
    """Return the function that launches an entry. Its result: 0, or the numbers of FAULTS."""
    if form in ("source", "checked"):
        of, head, fixed, static, faults = "", f"{kernel.name}::Head", f"{kernel.name}::Fixed", "0", "emulate::diverged"
    else:
        of = f"{kernel.name}::"
        head, fixed, static = (f"{of}{x}" for x in (f"{entry}_param_0", f"{entry}_param_1", "STATIC_SHARED"))
        faults = "(emulate::diverged | ptx::faults)"
    begin = f"ptx::shared_nbytes = {static} + shared;" if of else ""
    return f"""
static {head} head_{entry};
static {fixed} fixed_{entry};
static void body_{entry}() {{ {of}{entry}(head_{entry}, fixed_{entry}); }}
extern "C" int run_{entry}(
    const void* h, const void* g, const unsigned* grid, const unsigned* block, size_t shared, int falling) {{
  memcpy(&head_{entry}, h, sizeof head_{entry});
  memcpy(&fixed_{entry}, g, sizeof fixed_{entry});
  {begin}
  emulate::launch(grid, block, {static} + shared, falling, body_{entry});
  return {faults};
}}
extern "C" size_t sizes_{entry}() {{ return sizeof head_{entry} << 32 | sizeof fixed_{entry}; }}
"""


FAULTS = {
    1: "some threads of a block wait at a barrier that others never reach",
    2: "an access is not aligned to its size",
    4: "an access is outside of the block's shared memory",
    8: "a trap",
}
"""The faults that a launch reports, by bit."""


def _build(source: Path, made: Path, form: Form) -> None:
    """Compile a library."""
    assert COMPILER is not None
    flags = ["-std=gnu++17", "-O0", "-fPIC", "-w", "-ffp-contract=off", "-fwrapv"]
    include = [f"-I{_HERE}", f"-I{folder('kernels')}"]
    if COMPILER.endswith("g++") and not COMPILER.endswith("clang++"):
        flags.append("-fno-weak")  # shared variables of inline functions go to the same section
    if form != "checked":
        flags[1] = "-O1" if form == "traffic" else "-O0"
        _compile([*flags, *include, "-shared", str(source), "-o", str(made)])
        return
    # The object calls hooks of its own: neither libtsan nor libubsan is linked.
    flags[1:2] = ["-O1", "-fsanitize=thread,bounds", "-DEIN_CHECKED"]
    checks, compiled = made.parent / "check_accesses.o", source.with_suffix(".o")
    if not checks.exists():
        unfinished = source.with_suffix(".checks.o")
        _compile(["-std=c++17", "-O2", "-c", "-fPIC", str(_HERE / "check_accesses.cpp"), "-o", str(unfinished)])
        unfinished.replace(checks)
    _compile([*flags, *include, "-c", str(source), "-o", str(compiled)])
    _compile(["-shared", "-Wl,-Bsymbolic", str(compiled), str(checks), "-ldl", "-o", str(made)])


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
    """Calls of kernels of one library."""

    def __init__(self, kernels: Sequence[CudaKernel], scratch: Path, form: Form = "source") -> None:
        self.library, self.checked = library(kernels, scratch, form), form == "checked"
        if self.checked:
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
        faults = run(head, launch.fixed, *dims, ctypes.c_size_t(launch.shared_nbytes), int(falling))
        assert not faults, f"{launch.entry}: {', '.join(text for bit, text in FAULTS.items() if faults & bit)}"
        if self.checked:
            faults = self.library.check_faults().decode()
            assert not faults, faults

    def counts(self) -> dict[str, int]:
        """Return what the launches since the last call counted (of PTX)."""
        words = (ctypes.c_uint64 * len(COUNTERS))()
        self.library.read_counts(words)
        return dict(zip(COUNTERS, words, strict=True))

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
        """One call; gives the status words."""
        extents = tuple(extents)
        workspace = Workspace(kernel.workspace_nbytes(extents))
        status = np.array([0] + [NOWHERE] * (STATUS_NBYTES // 8 - 1), np.int64)
        launches = kernel.launches(extents, [view(x) for x in operands], [view(x) for x in outs])
        head = kernel.head(
            extents,
            [x.ctypes.data for x in outs],
            [x.ctypes.data for x in operands],
            origins,
            first,
            workspace.address,
            status.ctypes.data,
        )
        if self.checked:
            spans = [(*np.lib.array_utils.byte_bounds(x), False) for x in operands if x.size]
            spans += [(*np.lib.array_utils.byte_bounds(x), True) for x in outs if x.size]
            spans += [(*np.lib.array_utils.byte_bounds(status), True)]
            self.end_call(0)
            self.begin_call(0, [*ranges_of(kernel, spans, first), workspace.range])
            self.select_call(0)
        for one in launches:
            self.launch(one, head, falling)
            workspace.check(one.entry)
        told = kernel.explained(launches)
        if status[1] != NOWHERE and told is not None:
            self.launch(told, head, falling)
        return status


class Workspace:
    """A workspace of exactly the stated size, aligned to 256 bytes, with a pattern in it and around it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self._room = nbytes, np.full(nbytes + 512, PATTERN, np.uint8)
        self._start = -self._room.ctypes.data % 256
        self.address = self._room.ctypes.data + self._start
        self.range = self.address, self.address + nbytes, EMPTY

    def check(self, entry: str) -> None:
        """Check that the pattern around it is as it was."""
        outside = self._room[: self._start], self._room[self._start + self.nbytes :]
        assert all((x == PATTERN).all() for x in outside), f"{entry} writes outside its workspace"


class DecodedCall(Protocol):
    """A call as the bytes of its parameters say it. ``accesses``: begin, end, written; the status comes last.

    ``workspace_word``: the word of ``head`` that is the workspace's address.
    """

    head: bytes
    extents: Sequence[int]
    first: bool
    workspace_word: int
    accesses: list[tuple[int, int, bool]]


class LaunchExecutor:
    """Runs the launches of a device by the kernels' own sources, each compiled once."""

    def __init__(self, scratch: Path, form: Form = "source") -> None:
        self.scratch, self.form, self.launches = scratch, form, 0
        self._emulators: dict[str, Emulator] = {}
        self._workspaces: dict[int, tuple[bytes, Workspace]] = {}

    def prepared(self, kernel: CudaKernel, launch: Launch, call: DecodedCall, stream: int) -> Work:
        """A launch of a call, within the limits of a GPU."""
        emulator = self._emulators.get(kernel.name)
        if emulator is None:
            emulator = self._emulators[kernel.name] = Emulator([kernel], self.scratch, self.form)
        assert emulator.library.static_shared() + launch.shared_nbytes <= SHARED_NBYTES, (
            "more shared memory than there is"
        )
        head, at = call.head, call.workspace_word
        assert len(head) + len(launch.fixed) <= PARAMETER_NBYTES
        of, workspace = self._workspaces.get(stream, (b"", Workspace(0)))
        is_first = of is not head  # the launches of a call share it
        if is_first:
            workspace = Workspace(kernel.workspace_nbytes(tuple(call.extents)))
            self._workspaces[stream] = head, workspace
        words = np.frombuffer(head, np.int64).copy()
        assert not words[at] % 256
        words[at] = workspace.address
        self.launches += 1
        falling = bool(self.launches % 2)

        def run() -> None:
            if emulator.checked:
                if is_first:
                    emulator.end_call(stream)
                    emulator.begin_call(stream, [*ranges_of(kernel, call.accesses, call.first), workspace.range])
                emulator.select_call(stream)
            emulator.launch(launch, words.tobytes(), falling)
            workspace.check(launch.entry)

        return run


@lru_cache(maxsize=1)
def why_not() -> str:
    """Why kernels cannot be emulated here; empty where they can."""
    return "" if COMPILER else "no C++ compiler (g++ or clang++) on the path"


@lru_cache(maxsize=1)
def no_nvrtc() -> str:
    """Why there is no PTX here; empty where there is."""
    try:
        nvrtc.nvrtc()
    except nvrtc.NvrtcMissing as error:
        return str(error)
    return ""
