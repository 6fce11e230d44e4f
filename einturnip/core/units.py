"""Parsing and formatting of sizes in bytes, and formatting of durations."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from decimal import Decimal

from einturnip.core.errors import BindError

MIB = 1 << 20
PAGE_NBYTES = 4096  # of memory and of files
LINE_NBYTES = 64  # of the caches
UNLIMITED_NBYTES = 1 << 62
_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_DAY = 86400
_YEAR = 365.25 * _DAY
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")


def whole_lines(nbytes: int) -> int:
    """Round a number of bytes up to whole cache lines.

    >>> whole_lines(65)
    128
    """
    return -(-nbytes // LINE_NBYTES) * LINE_NBYTES


def parse_size(text: str | int) -> int:
    """Convert ``512MB``, ``1.5GiB``, ``4096B`` or a number of bytes to bytes.

    Raises:
        BindError: not a size; ``2G`` is refused because it may mean GB or GiB, ``1.5`` because it may mean GiB.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        nbytes = text
    else:
        match = _SIZE.fullmatch(str(text))
        if match is None:
            raise BindError(f"'{text}' is not a size. help: write one such as 512MB or 2GiB")
        number, unit = match.groups()
        if unit.lower() in ("k", "m", "g", "t"):
            letter = unit.upper()
            raise BindError(
                f"the size '{text}' may mean two things. help: write {number}{letter}iB or {number}{letter}B"
            )
        factor = _UNITS.get(unit.lower()) if unit else 1
        if factor is None:
            raise BindError(
                f"'{unit}' in '{text}' is no unit of size. help: use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
            )
        if factor == 1 and not number.isdigit():
            raise BindError(
                f"the size '{text}' has no unit. help: write one, such as 1.5GiB, or a whole number of bytes"
            )
        nbytes = int(number) * factor if number.isdigit() else int(float(number) * factor)
    if nbytes <= 0:
        raise BindError(f"the size '{text}' must be more than 0 bytes")
    return nbytes


def parse_sizes(text: str | int | Sequence[str | int]) -> tuple[int, ...]:
    """Convert one size, or one for each site: ``2GiB,512MiB``, or a sequence of sizes.

    Raises:
        BindError: there is no size, or one is wrong.
    """
    sizes = text.split(",") if isinstance(text, str) else text if isinstance(text, Sequence) else [text]
    return tuple(parse_size(size) for size in sizes) or (parse_size(""),)


def smallest_and_extra(sizes: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Return the smallest of several sizes, and what each has in addition; () if there is only one size."""
    smallest = min(sizes)
    return smallest, tuple(size - smallest for size in sizes) if len(sizes) > 1 else ()


def format_size(nbytes: float) -> str:
    """Format bytes in binary units with at most four digits: ``1.50 GiB``."""
    if abs(nbytes) >= 1 << 70:
        return f"{Decimal(nbytes):.3g} bytes"
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    if unit == "B" or abs(size) >= 100:
        return f"{size:.0f} {unit}"
    return f"{size:.1f} {unit}" if abs(size) >= 10 else f"{size:.2f} {unit}"


def format_minimum(nbytes: int) -> str:
    """Like ``format_size``, but never fewer bytes than given: for sizes that messages recommend.

    >>> format_size(2512), format_minimum(2512)
    ('2.45 KiB', '2.46 KiB')
    """
    text = format_size(nbytes)
    if "." not in text or parse_size(text) >= nbytes:
        number, unit = text.split()
        return text if parse_size(text) >= nbytes else f"{int(number) + 1} {unit}"
    number, unit = text.split()
    return f"{Decimal(number) + Decimal(1).scaleb(-len(number.partition('.')[2]))} {unit}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 tile``, ``2,000 tiles``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def element_name(name: str, place: Sequence[int]) -> str:
    """An element of a tensor as programs write it: ``y[12, 3]``; a scalar is its name."""
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def format_seconds(seconds: float) -> str:
    """A duration with about three digits: ``340 ms``, ``3 min 20 s``, ``5 h 12 min``."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if round(seconds) < 60:
        return f"{seconds:.3g} s"
    if round(seconds) < 3600:
        return _two(round(seconds), 60, "min", "s")
    if seconds < 2 * _DAY:
        return _two(round(seconds / 60), 60, "h", "min")
    if seconds < 2 * _YEAR:
        return f"{seconds / _DAY:.3g} days"
    years = seconds / _YEAR if seconds < sys.float_info.max else Decimal(seconds) / Decimal(_YEAR)
    return f"{years:.3g} years"


def _two(whole: int, of: int, larger: str, smaller: str) -> str:
    """A whole number of the smaller unit in both: ``3 min 20 s``."""
    first, rest = divmod(whole, of)
    return f"{first} {larger} {rest} {smaller}" if rest else f"{first} {larger}"
