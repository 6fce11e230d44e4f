"""The block formats of quantized GGUF tensors, and their expansion to floats.

Source: the structs of ggml's ggml-common.h and the loops of its ggml-quants.c, as documented there. Every product and
sum is computed in f32 in their order, so that results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from einturnip.ir.dtypes import DTYPES, DType
from einturnip.storage.types import Array

Expand = Callable[[Array, Array], None]
"""(bytes of n blocks as u8[n, nbytes], f32[n, points] to fill)."""


@dataclass(frozen=True, slots=True)
class BlockEncoding:
    """The encoding of a GGUF type: blocks of ``points`` numbers, each ``nbytes`` long.

    ``dtype`` is the type after reading unless the program declares another float; ``expand`` is None for plain types.
    """

    name: str
    points: int
    nbytes: int
    dtype: DType
    expand: Expand | None = None


def _halves(blocks: Array, at: int) -> Array:
    """The f16 at byte ``at`` of each block, as an f32 column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Array, out: Array) -> None:
    """The low four bits of all bytes, then the high four."""
    n = packed.shape[-1]
    np.bitwise_and(packed, 15, out=out[..., :n])
    np.right_shift(packed, 4, out=out[..., n:])


def _q4_0(blocks: Array, out: Array) -> None:
    quants = np.empty((len(blocks), 32), np.int8)
    _nibbles(blocks[:, 2:], quants.view(np.uint8))
    quants -= 8
    np.multiply(quants, _halves(blocks, 0), out=out)


def _q4_1(blocks: Array, out: Array) -> None:
    quants = np.empty((len(blocks), 32), np.uint8)
    _nibbles(blocks[:, 4:], quants)
    np.multiply(quants, _halves(blocks, 0), out=out)
    out += _halves(blocks, 2)


def _five_bits(blocks: Array, at: int) -> Array:
    """32 quants a block: high bits in a little-endian word at byte ``at``, followed by the nibbles."""
    quants = np.empty((len(blocks), 32), np.uint8)
    _nibbles(blocks[:, at + 4 :], quants)
    high = np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    high <<= 4
    quants |= high
    return quants


def _q5_0(blocks: Array, out: Array) -> None:
    quants = _five_bits(blocks, 2).view(np.int8)
    quants -= 16
    np.multiply(quants, _halves(blocks, 0), out=out)


def _q5_1(blocks: Array, out: Array) -> None:
    np.multiply(_five_bits(blocks, 4), _halves(blocks, 0), out=out)
    out += _halves(blocks, 2)


def _q8_0(blocks: Array, out: Array) -> None:
    np.multiply(blocks[:, 2:].view(np.int8), _halves(blocks, 0), out=out)


def _scales_and_minima(packed: Array) -> tuple[Array, Array]:
    """Unpack eight scales and eight minima of six bits from twelve bytes.

    The last four keep upper bits separately.
    """
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 6) << 4)], axis=1)
    return scales, minima


def _scaled(blocks: Array, quants: Array, out: Array) -> None:
    """``d * scale * quant - dmin * minimum`` over eight parts of 32."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    parts = out.reshape(-1, 8, 32)
    np.multiply(quants, (_halves(blocks, 0) * scales)[:, :, None], out=parts)
    parts -= (_halves(blocks, 2) * minima)[:, :, None]


def _k_nibbles(packed: Array) -> Array:
    quants = np.empty((len(packed), 4, 64), np.uint8)
    _nibbles(packed.reshape(-1, 4, 32), quants)
    return quants.reshape(-1, 8, 32)


def _q4_k(blocks: Array, out: Array) -> None:
    _scaled(blocks, _k_nibbles(blocks[:, 16:]), out)


def _q5_k(blocks: Array, out: Array) -> None:
    quants = _k_nibbles(blocks[:, 48:])
    for part in range(8):
        quants[:, part] |= (blocks[:, 16:48] >> part & 1) << 4
    _scaled(blocks, quants, out)


def _q6_k(blocks: Array, out: Array) -> None:
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    quants = np.empty((len(blocks), 2, 2, 64), np.uint8)
    np.bitwise_and(low[:, :, 0], 15, out=quants[:, :, 0])
    np.right_shift(low[:, :, 0], 4, out=quants[:, :, 1])
    fours = quants.reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 32)
    for part in range(4):
        fours[:, :, part] |= (high >> 2 * part & 3) << 4
    signed = quants.view(np.int8)
    signed -= 32
    scales = _halves(blocks, 208) * blocks[:, 192:208].view(np.int8)
    np.multiply(signed.reshape(-1, 16, 16), scales[:, :, None], out=out.reshape(-1, 16, 16))


def _plain(number: int, name: str, dtype: str) -> tuple[int, BlockEncoding]:
    return number, BlockEncoding(name, 1, DTYPES[dtype].itemsize, DTYPES[dtype])


def _blocked(number: int, name: str, points: int, nbytes: int, expand: Expand) -> tuple[int, BlockEncoding]:
    return number, BlockEncoding(name, points, nbytes, DTYPES["f32"], expand)


ENCODINGS = dict(
    (
        _plain(0, "F32", "f32"),
        _plain(1, "F16", "f16"),
        _blocked(2, "Q4_0", 32, 18, _q4_0),
        _blocked(3, "Q4_1", 32, 20, _q4_1),
        _blocked(6, "Q5_0", 32, 22, _q5_0),
        _blocked(7, "Q5_1", 32, 24, _q5_1),
        _blocked(8, "Q8_0", 32, 34, _q8_0),
        _blocked(12, "Q4_K", 256, 144, _q4_k),
        _blocked(13, "Q5_K", 256, 176, _q5_k),
        _blocked(14, "Q6_K", 256, 210, _q6_k),
        _plain(24, "I8", "i8"),
        _plain(25, "I16", "i16"),
        _plain(26, "I32", "i32"),
        _plain(27, "I64", "i64"),
        _plain(28, "F64", "f64"),
        _plain(30, "BF16", "bf16"),
    )
)
"""By the type number in a GGUF file."""

OTHERS = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4",
}  # fmt: skip
"""Types with a known name that are not supported."""
