"""Encodes values of the IRs as bytes, and decodes them, creating objects of listed classes only.

Objects are rows of JSON, each a class name and the values of its fields; a row refers only to rows before it, and
shared objects stay shared. Arrays follow as raw bytes and are used in place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from einturnip import caches
from einturnip.caches import DamagedEntry
from einturnip.core.errors import NeedsMore
from einturnip.core.program_limits import checkpoint, require_free
from einturnip.eingraph.types import ConcatNode, EinGraph, EinsumNode, Hints, InputNode, TensorPiece
from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import DTYPES, DType
from einturnip.ir.einsum import Einsum, Index, Key
from einturnip.ir.region import Region, RegionStep, Rescale, Shift
from einturnip.ir.scalar import LabelValue, OperandRef, ScalarCall, ScalarCast, ScalarConst
from einturnip.memgraph.types import MemGraph
from einturnip.runtime.scheduler.report import Prediction
from einturnip.taskgraph.types import TaskGraph
from einturnip.tiling.types import Decomposition, IoBlock, Partitioning
from einturnip.tuning.memory import DECODING_FACTOR, ENCODED_ROW_NBYTES

EXPRESSIONS: tuple[type, ...] = (
    *(ScalarConst, OperandRef, LabelValue, ScalarCast, ScalarCall),
    *(Index, Key, Aggregation, Einsum, RegionStep, Rescale, Shift, Region),
)
GRAPHS: tuple[type, ...] = (
    *(InputNode, Hints, EinsumNode, TensorPiece, ConcatNode, EinGraph),
    *(Partitioning, IoBlock, Decomposition, TaskGraph, MemGraph, Prediction),
)
_PLAIN = frozenset({bool, int, float, str, type(None)})
_COUNT, _ALIGNED = 8, 16


class NotEncodable(TypeError):
    """A value contains an object of a class that is not listed, or its encoding exceeds the memory limit."""


class PlanCodec:
    """Encodes values made of the given dataclasses and named tuples, and of plain data."""

    def __init__(self, classes: Iterable[type[Any]]) -> None:
        self._classes = {cls.__name__: cls for cls in classes}
        self.fields = {cls: _fields(cls) for cls in self._classes.values()}

    def to_bytes(self, value: Any) -> list[caches.Piece]:
        """Return a value as pieces of bytes.

        Raises:
            NotEncodable: it contains an object of another class, or memory does not suffice. RecursionError: it is
                nested too deep.
        """
        rows = _Rows(self.fields)
        try:
            root = rows.put(value)
            require_free(len(rows.rows) * ENCODED_ROW_NBYTES)
        except NeedsMore as error:
            raise NotEncodable(str(error)) from error
        arrays = [np.ascontiguousarray(a) for a in rows.arrays]
        shapes = [[a.dtype.str, a.shape] for a in arrays]
        try:
            head = json.dumps({"arrays": shapes, "rows": rows.rows, "root": root}, separators=(",", ":")).encode()
        except ValueError as error:  # an integer of thousands of digits
            raise NotEncodable(str(error)) from error
        pieces: list[caches.Piece] = [len(head).to_bytes(_COUNT, "little"), head]
        at = _COUNT + len(head)
        for array in arrays:
            pad = -at % _ALIGNED
            pieces += [bytes(pad), array.reshape(-1).view(np.uint8).data]
            at += pad + array.nbytes
        return pieces

    def from_bytes(self, data: bytes | memoryview) -> Any:
        """Return the value; its arrays are read-only views of the bytes.

        Raises:
            DamagedEntry: the bytes are not the result of ``to_bytes``. NeedsMore: memory does not suffice.
        """
        try:
            count = int.from_bytes(data[:_COUNT], "little")
            require_free(count * DECODING_FACTOR)
            head = json.loads(bytes(data[_COUNT : _COUNT + count]))
            arrays, at = [], _COUNT + count
            for dtype, shape in head["arrays"]:
                at += -at % _ALIGNED
                array = np.frombuffer(data, np.dtype(dtype), int(np.prod(shape, dtype=np.int64)), at).reshape(shape)
                arrays.append(array)
                at += array.nbytes
            return _value(head["root"], self._objects(head["rows"], arrays), arrays)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
            raise DamagedEntry(str(error)) from error

    def digest(self, value: Any) -> str:
        """Return a digest that identifies a value.

        Raises:
            NotEncodable, RecursionError: see ``to_bytes``.
        """
        digest = hashlib.sha256()
        for piece in self.to_bytes(value):
            digest.update(piece)
        return digest.hexdigest()

    def _objects(self, rows: list[Any], arrays: list[Any]) -> list[Any]:
        found: list[Any] = []
        for name, *values in rows:
            cls: Callable[..., Any] = self._classes[name]
            found.append(cls(*[_value(v, found, arrays) if type(v) in (list, dict) else v for v in values]))
        return found


def _fields(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls)) if is_dataclass(cls) else cls._fields


class _Rows:
    """Collects objects as rows and arrays separately, each once."""

    def __init__(self, fields: dict[type[Any], tuple[str, ...]]) -> None:
        self.rows: list[list[Any]] = []
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._fields = fields
        self._known: dict[int, Any] = {}

    def put(self, value: Any) -> Any:
        """Return the encoding of a value within a row."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [v if type(v) in _PLAIN else self.put(v) for v in value]
        known = self._known.get(id(value))
        if known is None:
            checkpoint()
            known = self._known[id(value)] = self._encode(kind, value)
        return known

    def _encode(self, kind: type, value: Any) -> Any:
        if kind in self._fields:
            row = [kind.__name__, *(self.put(getattr(value, name)) for name in self._fields[kind])]
            self.rows.append(row)
            return {"o": len(self.rows) - 1}
        if kind is DType:
            return {"t": value.name}
        if kind is np.ndarray and value.dtype.kind in "biuf":
            self.arrays.append(value)
            return {"a": len(self.arrays) - 1}
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if kind is dict:
            return {"d": [[self.put(k), self.put(v)] for k, v in value.items()]}
        raise NotEncodable(f"a {kind.__name__} cannot be encoded")


def _value(encoded: Any, objects: list[Any], arrays: list[Any]) -> Any:
    if type(encoded) is list:
        return tuple([_value(v, objects, arrays) if type(v) in (list, dict) else v for v in encoded])
    if type(encoded) is not dict:
        return encoded
    ((tag, data),) = encoded.items()
    match tag:
        case "o":
            return objects[data]
        case "t":
            return DTYPES[data]
        case "a":
            return arrays[data]
        case "c":
            return complex(*data)
        case "d":
            return {_value(k, objects, arrays): _value(v, objects, arrays) for k, v in data}
    raise DamagedEntry(f"unknown tag {tag!r}")
