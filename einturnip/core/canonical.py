"""Text that identifies a value in every process, for the keys of caches."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

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
