"""NVIDIA's run-time compiler (NVRTC) through ctypes: compiles CUDA C++ without a driver or a toolkit."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from einturnip.core.errors import DeviceError, InternalError
from einturnip.core.package_data import folder

OPTIONS = ("--std=c++17", "--fmad=true", "--extra-device-vectorization", "--restrict")
"""Compiler options of all sources."""

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "libnvrtc.so.11.2")
_HELP = "install it with: pip install nvidia-cuda-nvrtc (for CUDA 12's drivers: nvidia-cuda-nvrtc-cu12)"


class NvrtcMissing(DeviceError):
    """No NVRTC library was found, or the library found does not work."""


class CompileError(InternalError):
    """NVRTC rejected a source; the message is its log."""


def _candidates() -> Iterator[str]:
    """Yield possible paths of the library.

    In NVIDIA's wheels, in a toolkit, then names for the system's search.
    """
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for name in _NAMES:
            yield from map(str, sorted(Path(place).glob(f"*/lib/{name}"), reverse=True))
    for root in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if root:
            yield from (str(Path(root, "lib64", name)) for name in _NAMES if Path(root, "lib64", name).exists())
    yield from _NAMES if sys.platform == "linux" else ()


class Nvrtc:
    """A loaded NVRTC library. ``version``: (major, minor). ``path``: its file.

    ``capabilities``: compute capabilities for which it makes machine code, rising, such as 90 for 9.0.
    """

    def __init__(self, path: str) -> None:
        self.path, self._library = path, ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        capabilities = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", capabilities)
        self.capabilities = tuple(sorted(capabilities))

    def target(self, capability: int) -> str:
        """Return what to compile for a GPU: its machine code, else PTX for the newest older one.

        The driver compiles PTX for GPUs that are newer than this library.

        Raises:
            NvrtcMissing: the GPU is older than all that this library knows.
        """
        if capability in self.capabilities:
            return f"sm_{capability}"
        older = [known for known in self.capabilities if known < capability]
        if not older:
            raise NvrtcMissing(
                f"NVRTC {self.version[0]}.{self.version[1]} makes no code for GPUs of compute capability "
                f"{capability / 10}; install an older one: pip install nvidia-cuda-nvrtc-cu12"
            )
        return f"compute_{older[-1]}"

    def compile(self, source: str, arch: str, options: Sequence[str] = OPTIONS) -> bytes:
        """Compile a source: to a cubin for ``sm_90`` and the like, to PTX for ``compute_90``.

        Raises:
            CompileError: the source has errors; the message is the compiler's log.
        """
        program = ctypes.c_void_p()
        found = headers()
        names, texts = (ctypes.c_char_p * len(found))(), (ctypes.c_char_p * len(found))()
        for i, (name, text) in enumerate(found.items()):
            names[i], texts[i] = name.encode(), text.encode()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", len(found), texts, names)
        try:
            given = [o.encode() for o in (f"--gpu-architecture={arch}", *options)]
            array = (ctypes.c_char_p * len(given))(*given)
            if self._library.nvrtcCompileProgram(program, len(given), array):
                raise CompileError(f"NVRTC {self.version} for {arch}:\n{self._text(program, 'ProgramLog')}")
            return self._bytes(program, "CUBIN" if arch.startswith("sm_") else "PTX")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        return self._bytes(program, what).rstrip(b"\0").decode(errors="replace").strip()

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NvrtcMissing(f"{name}: {self._library.nvrtcGetErrorString(status).decode()} ({self.path})")


@lru_cache
def nvrtc(cuda: int | None = None) -> Nvrtc:
    """Return the first library that works, and whose code the driver accepts.

    ``cuda``: major version of the driver's CUDA; None if the code is not loaded.

    Raises:
        NvrtcMissing: there is none; the message says what to install.
    """
    tried = []
    for path in _candidates():
        try:
            found = Nvrtc(path)
        except (OSError, AttributeError) as error:
            tried.append(f"{path}: {error}")
            continue
        if cuda is None or found.version[0] <= cuda:
            return found
        tried.append(f"{path}: its CUDA {found.version[0]} is newer than the driver's, {cuda}")
    raise NvrtcMissing("no NVRTC library; " + _HELP + "".join(f"\n  tried {t}" for t in tried))


@lru_cache(maxsize=1)
def headers() -> dict[str, str]:
    """Return the text of the headers that sources include, by name."""
    return {path.name: path.read_text() for path in sorted(folder("kernels").glob("*.cuh"))}
