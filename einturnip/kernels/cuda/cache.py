"""Cache of compiled CUDA kernels on disk.

The key is a hash of the source, the headers, the options, the architecture and the compiler's version.
"""

from __future__ import annotations

import contextlib
import hashlib

from einturnip.caches import CUBINS, DamagedEntry
from einturnip.kernels.cuda.nvrtc import OPTIONS, headers, nvrtc


def compiled(source: str, arch: str) -> bytes:
    """Return a source's machine code for an architecture such as ``sm_90``, cached or compiled.

    Raises:
        NvrtcMissing: it is not in the cache, and there is no compiler.
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
