"""Compiled CUDA kernels, kept on disk by what they are made of: source, headers, options, architecture, compiler."""

from __future__ import annotations

import contextlib
import hashlib

from einturnip.caches import CUBINS, DamagedEntry
from einturnip.kernels.cuda.nvrtc import OPTIONS, headers, nvrtc


def compiled(source: str, arch: str) -> bytes:
    """A source as machine code for ``sm_90`` and the like; compiled at most once on this machine.

    Raises:
        NvrtcMissing: it is not on disk, and there is no compiler.
    """
    entry = f"{_key(source, arch)}.cubin"
    with contextlib.suppress(OSError, DamagedEntry):
        return bytes(CUBINS.read(entry))
    code = nvrtc().compile(source, arch)
    with contextlib.suppress(OSError):
        CUBINS.write({entry: [code]})
    return code


def _key(source: str, arch: str) -> str:
    parts = [source, *headers().values(), *OPTIONS, arch, str(nvrtc().version)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]
