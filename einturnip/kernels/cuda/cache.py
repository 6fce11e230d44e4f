"""Cache of compiled CUDA kernels on disk.

The key is a hash of the source, the headers, the options, the target and the compiler's version.
"""

from __future__ import annotations

import contextlib
import hashlib

from einturnip.caches import CUBINS, DamagedEntry
from einturnip.kernels.cuda.nvrtc import OPTIONS, headers, nvrtc


def compiled(source: str, capability: int, cuda: int) -> bytes:
    """Return a source's code for a GPU, cached or compiled.

    It is machine code, or PTX for a GPU that is newer than the compiler.

    ``capability``: 90 for 9.0. ``cuda``: major version of the driver's CUDA.

    Raises:
        NvrtcMissing: there is no compiler for this driver and GPU.
    """
    compiler = nvrtc(cuda)
    arch = compiler.target(capability)
    entry = f"{_key(source, arch, compiler.version)}.cubin"
    with contextlib.suppress(OSError, DamagedEntry):
        return bytes(CUBINS.read(entry))
    code = compiler.compile(source, arch)
    with contextlib.suppress(OSError):
        CUBINS.write({entry: [code]})
    return code


def _key(source: str, arch: str, version: tuple[int, int]) -> str:
    parts = [source, *headers().values(), *OPTIONS, arch, str(version)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]
