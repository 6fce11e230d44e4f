"""Cache of machine code, on disk between runs and in memory within one; keyed by kernel spec."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import struct
import sys
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, assert_never

from einturnip.caches import KERNELS, DamagedEntry
from einturnip.core.package_data import source_version
from einturnip.kernels.llvm import compiler, elf
from einturnip.kernels.llvm.command_list import CommandListExecutor, command_list_ir
from einturnip.kernels.llvm.kernel import Function
from einturnip.kernels.llvm.kernel_spec import KernelSpec
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.llvm.parallel_for import ParallelForCode, parallel_for_ir
from einturnip.kernels.llvm.partial_sums import ScatterCode
from einturnip.kernels.llvm.peak import PeakLoop, peak_function
from einturnip.kernels.llvm.row_spec import FusedRowSpec
from einturnip.kernels.llvm.scatter import scatter_function
from einturnip.kernels.llvm.take_rows import RowTakeCode, take_rows_ir

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


def canonical_text(value: Any) -> str:
    """Return a text that is the same for equal values, and differs for all others.

    ``value``: dataclasses of plain data, tuples, lists and frozensets, nested.

    Raises:
        TypeError: it contains an object of another class.
    """
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind in (tuple, list):
        return f"({','.join([canonical_text(v) for v in value])})"
    if kind is frozenset:
        return f"{{{','.join(sorted(map(canonical_text, value)))}}}"
    if is_dataclass(value):
        values = [canonical_text(getattr(value, f.name)) for f in fields(value) if f.compare]
        return f"{kind.__name__}({','.join(values)})"
    raise TypeError(f"a {kind.__name__} has no canonical text")


# Resident memory of the compiler's process (llvmlite 0.50: 94 MiB for a hundred kernels).
COMPILER_NBYTES = 128 << 20
Code: TypeAlias = (
    KernelSpec
    | FusedRowSpec
    | PackedSpec
    | CommandListExecutor
    | ParallelForCode
    | RowTakeCode
    | ScatterCode
    | PeakLoop
)
_NAME = "kernel"
_GENERATOR = ("ir", "kernels/expr", "kernels/llvm")  # the packages on which code depends
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
    required = {_key(spec): spec for spec in specs}
    before = len(_loaded)
    missing = {
        k: spec for k, spec in required.items() if k not in _loaded and k not in _failed and not _load_from_disk(k)
    }
    made = _compile({k: llvm_ir(spec) for k, spec in missing.items()}) if missing and available() else {}
    for key in missing:
        if key not in made or not _load(key, made[key]):
            _failed.add(key)
    with contextlib.suppress(OSError):  # where the disk refuses, this process still has them
        KERNELS.write({f"{key}.o": [data] for key, data in made.items() if key in _loaded})
    return len(_loaded) - before


def load_compiled(specs: Iterable[Code]) -> int:
    """Load those of these kernels whose code is on disk; return how many are newly loaded."""
    required = dict.fromkeys(map(_key, specs))
    return sum(_load_from_disk(key) for key in required if key not in _loaded and key not in _failed)


def is_on_disk() -> bool:
    """Return whether the disk cache has any code."""
    try:
        return any(entry.name.endswith(".o") for entry in os.scandir(KERNELS.path() or os.devnull))
    except OSError:
        return False


def is_missing(spec: Code) -> bool:
    """Return whether a kernel's code is not loaded and might still be compiled."""
    key = _key(spec)
    return key not in _loaded and key not in _failed


def ready() -> bool:
    """Return whether any code is loaded."""
    return bool(_loaded)


def find(spec: Code) -> Function | None:
    """Return the function of a kernel if its code is loaded."""
    return _loaded.get(_key(spec))


def forget() -> None:
    """Forget all loaded code and all failures."""
    _loaded.clear()
    _failed.clear()


@lru_cache(maxsize=1024)
def _key(spec: Code) -> str:
    """Return the name of a kernel's object file, without its suffix."""
    return hashlib.sha256(f"{_target()}\n{canonical_text(_without_extents(spec))}".encode()).hexdigest()[:40]


def _without_extents(spec: Code) -> Code:
    """Return what a kernel's code depends on, so that kernels of other sizes share it."""
    return spec.without_extents() if isinstance(spec, KernelSpec | FusedRowSpec) else spec


def llvm_ir(spec: Code) -> str:
    """Return the LLVM IR of a kernel."""
    match _without_extents(spec):
        case KernelSpec() as kernel:
            from einturnip.kernels.llvm.nest import function

            return function(kernel, _NAME)
        case FusedRowSpec() as row:
            from einturnip.kernels.llvm.row_nest import fused_row_function

            return fused_row_function(row, _NAME)
        case PackedSpec() as packed:
            from einturnip.kernels.llvm.pack_loops import packed_function

            return packed_function(packed, _NAME)
        case CommandListExecutor():
            return command_list_ir(_NAME)
        case ParallelForCode():
            return parallel_for_ir(_NAME)
        case RowTakeCode():
            return take_rows_ir(_NAME)
        case ScatterCode() as scatter:
            return scatter_function(scatter, _NAME)
        case PeakLoop() as peak:
            return peak_function(peak, _NAME)
        case unknown:
            assert_never(unknown)


@lru_cache(maxsize=1)
def _target() -> tuple[object, ...]:
    """Return what all code depends on: the processor's model and features, and the code generator."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    lines_of = [next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags")]
    try:
        generator = source_version(_GENERATOR)
    except OSError:  # the sources are not files; no other process may use this code
        generator = (os.urandom(16),)
    return platform.machine(), lines_of, generator


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
