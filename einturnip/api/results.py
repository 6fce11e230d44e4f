"""Results of runs: arrays by name, or handles of the files to which they were streamed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from einturnip.core.errors import StoreError
from einturnip.runtime.scheduler.report import RunReport
from einturnip.storage.selection import Selection, read_whole
from einturnip.storage.types import Array, Source

if TYPE_CHECKING:
    from einturnip.report.analyze import Analysis


class Result(Mapping[str, Any]):
    """The result of a run: each output by name, and its ``report``.

    An output is an array, or a ``File`` if it was streamed to one.
    """

    def __init__(
        self, values: Mapping[str, Any], report: Callable[[], RunReport], analyse: Callable[[], Analysis]
    ) -> None:
        self._values = dict(values)
        self._report = report
        self._analyse = analyse

    def without(self, names: Collection[str]) -> Result:
        """Return the result without some outputs (internal)."""
        return Result({n: v for n, v in self._values.items() if n not in names}, self._report, self._analyse)

    @property
    def report(self) -> RunReport:
        """The run's time, bytes, memory and warnings."""
        return self._report()

    def analyze(self) -> Analysis:
        """Compare predicted and actual time of every statement: print its ``text()``, or use its ``rows``."""
        return self._analyse()

    def __getitem__(self, name: str) -> Any:
        """Return an output by name."""
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(f"no output {name!r}; there are {', '.join(self._values)}") from None

    def __iter__(self) -> Iterator[str]:
        """Return the names of the outputs."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self._values)

    def __repr__(self) -> str:
        """Return names, types and shapes, without values."""
        shown = ", ".join(f"{name}: {value.dtype}{list(value.shape)}" for name, value in self._values.items())
        return f"Result({shown})"


@dataclass(frozen=True)
class File:
    """A stored tensor by name: an input to a program, or an output streamed to a file.

    It is a lazy array: an index reads what it selects, ``np.asarray`` reads it whole, and nothing is kept.
    """

    spec: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    allow_external: bool = False
    """True if its data may be in other files that this one names."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements in memory."""
        return self.size * self.dtype.itemsize

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The chunk shape in which it is stored; None if its elements are contiguous."""
        source = self._opened()
        try:
            return getattr(source, "chunks", None)
        finally:
            source.close()

    def __len__(self) -> int:
        """Return the extent of the first axis.

        Raises:
            TypeError: it is a scalar.
        """
        if not self.shape:
            raise TypeError("len() of a scalar")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read it into memory.

        Raises:
            ValueError: ``copy=False``, since its elements are not in memory.
        """
        if copy is False:
            raise ValueError(f"{self.spec}: reading a file makes a copy. help: leave out copy=False")
        out: Array = self._read(read_whole)
        return out if dtype is None else out.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        """Read the elements of an index, as NumPy selects them; or for a text, the array of that key.

        An index has integers, slices with any step, ``...``, ``None``, and at most one list or mask along one axis.

            >>> import numpy as np, einturnip as et
            >>> np.save("rows.npy", np.arange(12).reshape(4, 3))
            >>> et.open("rows.npy")[1, ::2]
            array([3, 5])

        Raises:
            BindError: the file has this array under another name. IndexError: the index is out of bounds, or of another
            kind. StoreError: the file cannot be read, or has another shape than when it was opened.
        """
        if isinstance(key, str):
            return _file(f"{self.spec}::{key}", self.allow_external)
        selection = Selection.of(key, self.shape)
        return self._read(selection.read)

    def _read(self, read: Callable[[Source], Any]) -> Any:
        from einturnip.storage.file_versions import require_unchanged

        source = self._opened()
        try:
            found = read(source)
            require_unchanged(source)
        finally:
            source.close()
        return found

    def _opened(self) -> Source:
        source = _open(self.spec, self.allow_external)
        if source.shape != self.shape or source.dtype.numpy != self.dtype:
            source.close()
            raise StoreError(
                f"{self.spec}: was {self.dtype}{list(self.shape)} when it was opened and is "
                f"{source.dtype}{list(source.shape)} now. help: open it again"
            )
        return source


class Archive(Mapping[str, File]):
    """A file of several arrays, each a ``File`` by its key; ``metadata`` is the rest of its header."""

    def __init__(self, spec: str, keys: tuple[str, ...], allow_external: bool = False) -> None:
        self.spec = spec
        self._allow_external = allow_external
        self._keys = dict.fromkeys(keys)

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of a ``.gguf`` or ``.safetensors`` file.

        Read at each call, since a vocabulary takes megabytes.
        """
        from einturnip.storage.open import metadata

        return metadata(self.spec)

    def __getitem__(self, key: str) -> File:
        """One of the arrays; ``blk.*.attn_q.weight`` is all of that pattern, stacked along a new first axis.

        Raises:
            BindError: there is none of this name; names the nearest.
        """
        return _file(f"{self.spec}::{key}", self._allow_external)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the arrays."""
        return iter(self._keys)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        """Return whether an array has this name, without opening it."""
        return key in self._keys

    def __repr__(self) -> str:
        """Return the address and the number of arrays."""
        return f"Archive({self.spec!r}, {len(self)} arrays)"


def _open(spec: str, allow_external: bool) -> Source:
    from einturnip.storage.formats.hdf5_external import external_files_allowed
    from einturnip.storage.open import open_source

    with external_files_allowed(allow_external):
        return open_source(spec, spec)


def _file(spec: str, allow_external: bool) -> File:
    source = _open(spec, allow_external)
    try:
        return File(spec, source.shape, source.dtype.numpy, allow_external)
    finally:
        source.close()


def open(path: str | os.PathLike[str], allow_external: bool = False) -> File | Archive:
    """Open a tensor in a file (``x.npy``, ``w.safetensors::layer.0``); programs read it tile by tile.

    A file of several arrays without a key, or a model's directory, returns an ``Archive``. ``allow_external=True``: an
    HDF5 dataset may take its data from other files; calls that use it need the same option.

    Raises:
        BindError: there is no such file. StoreError: it cannot be read.
    """
    from einturnip.storage.location import split
    from einturnip.storage.open import keys

    spec = os.fspath(path)
    if split(spec)[1] is None:
        found = keys(spec)
        if found is not None and len(found) != 1:
            return Archive(spec, found, allow_external)
    return _file(spec, allow_external)
