"""The interface of a file format: one subclass each, one object per suffix.

``registry`` finds the object of a suffix; ``formats`` holds the formats that come with einturnip.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from einturnip.core.errors import BindError
from einturnip.ir.dtypes import DType
from einturnip.storage.outputs.sinks import Container, FileSkeleton, OutputContainer, Tensors
from einturnip.storage.types import Source


class FileFormat(ABC):
    """Reads one file format and, if ``writable``, writes it.

    ``has_keys``: a file holds several arrays with names, as in ``FILE::KEY``.
    """

    has_keys = True
    writable = True

    @abstractmethod
    def source(self, path: str, key: str | None, name: str) -> Source:
        """Open one array of a file for the input ``name``.

        Raises:
            StoreError: the file is damaged, truncated or of an element type that the language lacks.
            BindError: there is no such file, or no such array in it.
        """

    def keys(self, path: str) -> tuple[str, ...] | None:
        """The names of the arrays in a file; None for a single array without a name.

        Raises:
            BindError: there is no such file. StoreError: it cannot be read.
        """
        return None

    def metadata(self, path: str) -> dict[str, Any]:
        """The metadata in the file's header.

        Raises:
            BindError: there is no such file. StoreError: it cannot be read.
        """
        return {}

    def package_nbytes(self, path: str) -> int:
        """Resident bytes that loading the format's package will take; 0 if it is loaded, or there is none.

        Raises:
            StoreError: the package is missing; the message names it.
        """
        return 0

    def lay_out(self, path: str, tensors: Tensors) -> FileSkeleton:
        """Place the arrays in a file, without touching the disk.

        Raises:
            BindError: an element type or a key that the format lacks.
        """
        raise BindError(f"{path}: this format is read, not written")

    def container(self, path: str, tensors: Tensors, chunks: Mapping[str, tuple[int, ...]]) -> Container:
        """Create the file, with all its disk space, under a temporary name.

        ``chunks``: by key, the chunk shape of an array; by default that of ``output_chunks``.

        Raises:
            StoreError: the disk is full or the directory fails; nothing remains. BindError: as ``lay_out``.
        """
        return OutputContainer(path, self.lay_out(path, tensors), tensors)

    def output_chunks(self, shape: tuple[int, ...], dtype: DType, periods: Sequence[int] = ()) -> tuple[int, ...]:
        """The chunk shape of a written array; () for a contiguous one.

        ``periods``: by axis, a distance that the extent of chunks must divide; 0 for any.
        """
        return ()
