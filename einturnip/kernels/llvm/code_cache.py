"""Cache of machine code by its LLVM IR and the processor: on disk between runs, in memory within one."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import platform
import struct
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias, assert_never

from einturnip.caches import KERNELS, DamagedEntry
from einturnip.kernels.llvm import compiler, elf
from einturnip.kernels.llvm.command_list import CommandListExecutor, command_list_ir
from einturnip.kernels.llvm.kernel import Function
from einturnip.kernels.llvm.kernel_spec import KernelSpec
from einturnip.kernels.llvm.pack_routines import ProductSpec
from einturnip.kernels.llvm.parallel_for import ParallelForCode, parallel_for_ir
from einturnip.kernels.llvm.partial_sums import ScatterCode
from einturnip.kernels.llvm.peak import PeakLoop, peak_function
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.llvm.scatter import scatter_function
from einturnip.kernels.llvm.take_rows import RowTakeCode, take_rows_ir

# Resident memory of the compiler's process (llvmlite 0.50: 94 MiB for a hundred kernels).
COMPILER_NBYTES = 128 << 20
Code: TypeAlias = (
    KernelSpec
    | FusedRowSpec
    | ProductSpec
    | CommandListExecutor
    | ParallelForCode
    | RowTakeCode
    | ScatterCode
    | PeakLoop
)
_NAME = "kernel"
_COMPILE_SECONDS = 120.0  # time limit of the compiler's process in seconds, so that it cannot block a run forever
_loaded: dict[str, Function] = {}
_failed: set[str] = set()


def available() -> bool:
    """Return whether kernels can be compiled here: x86-64 Linux with llvmlite."""
    return platform.system() == "Linux" and platform.machine() == "x86_64" and find_spec("llvmlite") is not None


def prepare(specs: Iterable[Code]) -> int:
    """Load the code of these kernels, compiling what is not on disk; return how many are newly loaded.

    Code that cannot be compiled or loaded is left out: NumPy computes those kernels.
    """
    required = dict(map(_source, specs))
    before = len(_loaded)
    missing = {
        k: text for k, text in required.items() if k not in _loaded and k not in _failed and not _load_from_disk(k)
    }
    made = _compile(missing) if missing and available() else {}
    for key in missing:
        if key not in made or not _load(key, made[key]):
            _failed.add(key)
    with contextlib.suppress(OSError):  # where the disk refuses, this process still has them
        KERNELS.write({f"{key}.o": [data] for key, data in made.items() if key in _loaded})
    return len(_loaded) - before


def load_compiled(specs: Iterable[Code]) -> int:
    """Load those of these kernels whose code is on disk; return how many are newly loaded."""
    required = dict.fromkeys(_source(spec)[0] for spec in specs)
    return sum(_load_from_disk(key) for key in required if key not in _loaded and key not in _failed)


def is_missing(spec: Code) -> bool:
    """Return whether a kernel's code is not loaded and might still be compiled."""
    key = _source(spec)[0]
    return key not in _loaded and key not in _failed


def ready() -> bool:
    """Return whether any code is loaded."""
    return bool(_loaded)


def find(spec: Code) -> Function | None:
    """Return the function of a kernel if its code is loaded."""
    return _loaded.get(_source(spec)[0])


def forget() -> None:
    """Forget all loaded code and all failures."""
    _loaded.clear()
    _failed.clear()


@lru_cache(maxsize=1024)
def _source(spec: Code) -> tuple[str, str]:
    """Return the name of a kernel's object file, a hash of IR and processor, and its LLVM IR."""
    match spec:
        case KernelSpec() if spec.packing is not None:
            from einturnip.kernels.llvm.packed_nest import packed_function

            text = packed_function(spec, _NAME)
        case KernelSpec():
            from einturnip.kernels.llvm.nest import function

            text = function(spec, _NAME)
        case FusedRowSpec():
            from einturnip.kernels.llvm.row_nest import fused_row_function

            text = fused_row_function(spec, _NAME)
        case ProductSpec():
            from einturnip.kernels.llvm.pack_loops import multiply_function

            text = multiply_function(spec, _NAME)
        case CommandListExecutor():
            text = command_list_ir(_NAME)
        case ParallelForCode():
            text = parallel_for_ir(_NAME)
        case RowTakeCode():
            text = take_rows_ir(_NAME)
        case ScatterCode():
            text = scatter_function(spec, _NAME)
        case PeakLoop():
            text = peak_function(spec, _NAME)
        case _:
            assert_never(spec)
    return hashlib.sha256(f"{_processor()}\n{text}".encode()).hexdigest()[:40], text


@lru_cache(maxsize=1)
def _processor() -> str:
    """Return a hash of the processor's model, its features and the compiler's settings."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    lines_of = [next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags")]
    settings = Path(compiler.__file__).read_bytes()
    return hashlib.sha256("\n".join([*lines_of, platform.machine()]).encode() + settings).hexdigest()


def _load_from_disk(key: str) -> bool:
    """Load an object file from the disk cache; return False if it is missing or damaged."""
    try:
        return _load(key, bytes(KERNELS.read(f"{key}.o")))
    except (OSError, DamagedEntry):
        return False


def _load(key: str, data: bytes) -> bool:
    """Load an object file; return False if the loader does not support it."""
    try:
        code = elf.load(data, _NAME)
    except (elf.Unloadable, struct.error, ValueError, IndexError):
        return False
    made = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)
    made.code = code  # type: ignore[attr-defined]  # keeps the bytes alive as long as the function
    _loaded.setdefault(key, made)  # another thread may have loaded it first, and may be calling it
    return True


def _compile(sources: dict[str, str]) -> dict[str, bytes]:
    """Compile sources in a child process and return the object files by key; failures are left out."""
    import json
    import subprocess

    jobs = "".join(json.dumps({"key": key, "ir": text}) + "\n" for key, text in sources.items())
    command = [sys.executable, "-I", "-S", compiler.__file__, *map(str, sys.path)]
    try:
        replies = subprocess.run(
            command, input=jobs.encode(), capture_output=True, timeout=_COMPILE_SECONDS, check=False
        ).stdout
    except subprocess.TimeoutExpired as expired:
        replies = expired.stdout or b""
    except OSError:
        return {}
    found, at = {}, 0
    while (end := replies.find(b"\n", at)) >= 0:
        reply = json.loads(replies[at:end])
        at = end + 1 + reply["nbytes"]
        if at <= len(replies):
            found[reply["key"]] = replies[end + 1 : at]
    return found
