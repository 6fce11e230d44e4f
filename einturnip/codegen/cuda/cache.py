"""Compiled CUDA kernels on disk, by what they are made of: source, headers, options, architecture, compiler."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from einturnip.codegen.cuda.nvrtc import OPTIONS, headers, nvrtc

_MOST_FILES = 4096  # at 5 to 60 KiB each


def folder() -> Path:
    """Where they are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "einturnip" / "cuda"


def compiled(source: str, arch: str) -> bytes:
    """A source as machine code for ``sm_90`` and the like; compiled at most once on this machine.

    Raises:
        NvrtcMissing: it is not on disk, and there is no compiler.
    """
    path = folder() / f"{_key(source, arch)}.cubin"
    with contextlib.suppress(OSError):
        code = path.read_bytes()
        if code[:4] == b"\x7fELF":
            return code
    code = nvrtc().compile(source, arch)
    _keep(path, code)
    return code


def _key(source: str, arch: str) -> str:
    parts = [source, *headers().values(), *OPTIONS, arch, str(nvrtc().version)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def _keep(path: Path, code: bytes) -> None:
    """Written beside and moved in place, so that no reader meets half of it; where that fails there is no copy."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        os.replace(name, path)
        files = sorted(path.parent.glob("*.cubin"), key=lambda p: p.stat().st_mtime)
        for old in files[:-_MOST_FILES]:
            old.unlink(missing_ok=True)
