"""The codecs that Zarr metadata name, as bounded decoders.

Source: the Zarr core specifications, versions 2 and 3 (zarr-specs.readthedocs.io), and numcodecs, whose codecs version
2 names by ``id`` and version 3 by ``numcodecs.ID``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from einturnip.storage.chunks.compression import UnknownCodecError, compressor
from einturnip.storage.chunks.decoder import Codec, Filter, NewMemory
from einturnip.storage.chunks.filters import adler32, checksum, crc32, fletcher32, shuffle

_FROM_NUMCODECS = ("zstd", "blosc", "lz4")
# Where the decoded and the encoded element type are named.
_BY_ELEMENT = {
    "delta": ("dtype", "astype"),
    "fixedscaleoffset": ("dtype", "astype"),
    "quantize": ("dtype", "astype"),
    "astype": ("decode_dtype", "encode_dtype"),
}
_BLOCK_ELEMENTS, _BLOCK_NBYTES = 1 << 14, 24
"""Elements that are decoded at once, and the bytes that each takes meanwhile."""
KNOWN = (
    *("gzip", "zlib", "bz2", "lzma", *_FROM_NUMCODECS, "shuffle", *_BY_ELEMENT),
    *("crc32c", "crc32", "adler32", "fletcher32", "transpose", "sharding_indexed"),
)


def codec(name: str, settings: Mapping[str, Any]) -> Codec:
    """A codec from bytes to bytes, or between element types in a buffer.

    Raises:
        UnknownCodecError: it is not supported. ImportError: the package that decodes it is missing.
    """
    name = name.removeprefix("numcodecs.")
    if name in _FROM_NUMCODECS:
        import_module(f"numcodecs.{name}")  # now, so that it is resident before a budget is computed
    found = compressor(name, settings)
    if found is not None:
        return found
    match name:
        case "shuffle":
            return shuffle(_positive(settings.get("elementsize", 4)))
        case "crc32c":
            return checksum(name, _crc32c(), settings.get("location", "end") == "start")
        case "crc32":
            return checksum(name, crc32, settings.get("location", "start") == "start")
        case "adler32":
            return checksum(name, adler32, settings.get("location", "start") == "start")
        case "fletcher32":
            return checksum(name, fletcher32)
    if name in _BY_ELEMENT:
        return _by_element(name, settings)
    raise UnknownCodecError(f"its codec {name!r} is not supported; supported are {', '.join(KNOWN)}")


def _positive(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is no size")
    return value


def _crc32c() -> Any:
    extend = import_module("google_crc32c").extend

    def compute(data: memoryview) -> Sequence[int]:
        value = 0
        for at in range(0, data.nbytes, 1 << 18):
            value = extend(value, bytes(data[at : at + (1 << 18)]))
        return (value,)

    return compute


def _by_element(name: str, settings: Mapping[str, Any]) -> Filter:
    decoded, encoded = (np.dtype(settings.get(k) or settings["dtype"]) for k in _BY_ELEMENT[name])
    if any(dtype.kind not in "biufc" for dtype in (decoded, encoded)):
        raise UnknownCodecError(f"its codec {name!r} makes elements of {decoded} from {encoded}")
    made = import_module("numcodecs").get_codec({**settings, "id": name})

    def decode(data: memoryview, memory: NewMemory) -> memoryview:
        values = np.frombuffer(data, encoded)
        target = memory(len(values) * decoded.itemsize)
        out = np.frombuffer(target, decoded)
        for at in range(0, len(values), _BLOCK_ELEMENTS):
            part, result = values[at : at + _BLOCK_ELEMENTS], out[at : at + _BLOCK_ELEMENTS]
            if name == "delta":  # numcodecs' decoder cannot go on from the sum of an earlier block
                steps = part.astype(decoded)
                if at:
                    steps[:1] += out[at - 1 : at]
                np.cumsum(steps, out=result)
            else:
                result[...] = np.asarray(made.decode(part)).reshape(-1)
        return target

    # An expression has intermediate results in double precision.
    return Filter(
        name, decode, lambda n: n // decoded.itemsize * encoded.itemsize, lambda _: _BLOCK_ELEMENTS * _BLOCK_NBYTES
    )
