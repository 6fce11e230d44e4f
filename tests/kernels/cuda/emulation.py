"""The generated CUDA sources run on the host: the same text compiled as C++ over a header that plays the GPU."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from einturnip.core.package_data import folder
from einturnip.kernels.cuda.types import NOWHERE, STATUS_NBYTES, CudaKernel, DeviceTile, Launch

COMPILER = shutil.which("g++") or shutil.which("clang++")
_HERE = Path(__file__).parent


def view(array: np.ndarray) -> DeviceTile:
    """How an array lies."""
    return DeviceTile(array.strides, array.ctypes.data % 16 == 0)


def library(kernels: Iterable[CudaKernel], scratch: Path) -> ctypes.CDLL:
    """All these kernels in one shared library, each entry behind a function that launches it."""
    distinct = {k.name: k for k in kernels}
    text = (
        '#include "emulate.h"\n'
        + "\n".join(k.source for k in distinct.values())
        + "\n".join(
            f"""
static {k.name}::Head head_{entry};
static {k.name}::Fixed fixed_{entry};
static void body_{entry}() {{ {entry}(head_{entry}, fixed_{entry}); }}
extern "C" void run_{entry}(
    const void* h, const void* g, const unsigned* grid, const unsigned* block, size_t shared, int falling) {{
  memcpy(&head_{entry}, h, sizeof head_{entry});
  memcpy(&fixed_{entry}, g, sizeof fixed_{entry});
  emulate::launch(grid, block, shared, falling, body_{entry});
}}
extern "C" size_t sizes_{entry}() {{ return sizeof head_{entry} << 32 | sizeof fixed_{entry}; }}
"""
            for k in distinct.values()
            for entry in k.entries
        )
    )
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    source, made = scratch / f"{key}.cpp", scratch / f"{key}.so"
    if not made.exists():
        source.write_text(text)
        assert COMPILER is not None
        flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fwrapv"]
        include = [f"-I{_HERE}", f"-I{folder('kernels')}"]
        done = subprocess.run(
            [COMPILER, *flags, *include, str(source), "-o", str(made)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(made))


class Emulator:
    """Calls of kernels of one library."""

    def __init__(self, kernels: Sequence[CudaKernel], scratch: Path) -> None:
        self.library = library(kernels, scratch)

    def launch(self, launch: Launch, head: bytes, falling: bool) -> None:
        """One launch."""
        sizes = getattr(self.library, f"sizes_{launch.entry}")
        sizes.restype = ctypes.c_size_t
        assert sizes() == len(head) << 32 | len(launch.fixed)
        run = getattr(self.library, f"run_{launch.entry}")
        dims = [(ctypes.c_uint * 3)(*d) for d in (launch.grid, launch.block)]
        run(head, launch.fixed, *dims, ctypes.c_size_t(launch.shared_nbytes), int(falling))

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
        room = np.full(nbytes + 512, 0xA5, np.uint8)
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
        for one in launches:
            self.launch(one, head, falling)
        assert (room[start + nbytes :] == 0xA5).all()
        told = kernel.explained(launches)
        if status[1] != NOWHERE and told is not None:
            self.launch(told, head, falling)
        return status


@lru_cache(maxsize=1)
def why_not() -> str:
    """Why kernels cannot be emulated here; empty where they can."""
    return "" if COMPILER else "no C++ compiler (g++ or clang++) on the path"
