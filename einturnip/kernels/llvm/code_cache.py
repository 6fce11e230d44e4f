"""Compiled kernels by what they compute: in the cache on disk between runs, in memory within one."""

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
_PATIENCE = 120.0  # seconds that compiling may take: a compiler that hangs must not hang the run
_loaded: dict[str, Function] = {}
_refused: set[str] = set()


def available() -> bool:
    """Whether kernels can be compiled here: x86-64 Linux with llvmlite."""
    return platform.system() == "Linux" and platform.machine() == "x86_64" and find_spec("llvmlite") is not None


def prepare(recipes: Iterable[Code]) -> int:
    """Load the code of these kernels, compiled now where it is not on disk; gives how many were not there before.

    What cannot be had is left out: NumPy computes it.
    """
    wanted = dict(map(_source, recipes))
    before = len(_loaded)
    missing = {k: text for k, text in wanted.items() if k not in _loaded and k not in _refused and not _bring(k)}
    made = _compile(missing) if missing and available() else {}
    for key in missing:
        if key not in made or not _load(key, made[key]):
            _refused.add(key)
    with contextlib.suppress(OSError):  # where the disk refuses, this process still has them
        KERNELS.write({f"{key}.o": [data] for key, data in made.items() if key in _loaded})
    return len(_loaded) - before


def load_compiled(recipes: Iterable[Code]) -> int:
    """Load the code of those of these kernels that is on disk; gives how many were not there before."""
    wanted = dict.fromkeys(_source(recipe)[0] for recipe in recipes)
    return sum(_bring(key) for key in wanted if key not in _loaded and key not in _refused)


def is_missing(recipe: Code) -> bool:
    """Whether its code is not here and could be compiled."""
    key = _source(recipe)[0]
    return key not in _loaded and key not in _refused


def ready() -> bool:
    """Whether any kernel was prepared."""
    return bool(_loaded)


def find(recipe: Code) -> Function | None:
    """The code of a kernel, where it was prepared."""
    return _loaded.get(_source(recipe)[0])


def forget() -> None:
    """As if nothing had been prepared."""
    _loaded.clear()
    _refused.clear()


@lru_cache(maxsize=1024)
def _source(recipe: Code) -> tuple[str, str]:
    """A kernel's code, and the name of its object file: by code and processor."""
    match recipe:
        case KernelSpec() if recipe.packing is not None:
            from einturnip.kernels.llvm.packed_nest import packed_function

            text = packed_function(recipe, _NAME)
        case KernelSpec():
            from einturnip.kernels.llvm.nest import function

            text = function(recipe, _NAME)
        case FusedRowSpec():
            from einturnip.kernels.llvm.row_nest import band_function

            text = band_function(recipe, _NAME)
        case ProductSpec():
            from einturnip.kernels.llvm.pack_loops import multiply_function

            text = multiply_function(recipe, _NAME)
        case CommandListExecutor():
            text = command_list_ir(_NAME)
        case ParallelForCode():
            text = parallel_for_ir(_NAME)
        case RowTakeCode():
            text = take_rows_ir(_NAME)
        case ScatterCode():
            text = scatter_function(recipe, _NAME)
        case PeakLoop():
            text = peak_function(recipe, _NAME)
        case _:
            assert_never(recipe)
    return hashlib.sha256(f"{_processor()}\n{text}".encode()).hexdigest()[:40], text


@lru_cache(maxsize=1)
def _processor() -> str:
    """What the machine code hangs on beside the source: the processor's kind and the compiler's settings."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = [next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags")]
    settings = Path(compiler.__file__).read_bytes()
    return hashlib.sha256("\n".join([*told, platform.machine()]).encode() + settings).hexdigest()


def _bring(key: str) -> bool:
    """Load an object file from the cache; one that is damaged is as good as none."""
    try:
        return _load(key, bytes(KERNELS.read(f"{key}.o")))
    except (OSError, DamagedEntry):
        return False


def _load(key: str, data: bytes) -> bool:
    """Load an object file; False where the loader does not know what is in it."""
    try:
        code = elf.load(data, _NAME)
    except (elf.Unloadable, struct.error, ValueError, IndexError):
        return False
    made = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)
    made.code = code  # type: ignore[attr-defined]  # whoever holds the function holds its bytes
    _loaded.setdefault(key, made)  # another thread may have been first, and call it by now
    return True


def _compile(sources: dict[str, str]) -> dict[str, bytes]:
    """Object files made by the compiler's process, by key; what goes wrong there is left out."""
    import json
    import subprocess

    jobs = "".join(json.dumps({"key": key, "ir": text}) + "\n" for key, text in sources.items())
    command = [sys.executable, "-I", "-S", compiler.__file__, *map(str, sys.path)]
    try:
        replies = subprocess.run(
            command, input=jobs.encode(), capture_output=True, timeout=_PATIENCE, check=False
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
