"""Stacks tensors of one shape along new leading axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from einturnip.core.errors import BindError
from einturnip.ir.dtypes import DTYPES, DType
from einturnip.storage.file_versions import require_unchanged
from einturnip.storage.layout import c_layout
from einturnip.storage.types import Array, Extent, Region, Source, expanded_to, transfer_itemsize


class StackedSource:
    """Stored tensors of one shape, in C order along ``leading`` axes; extents count as in one tensor."""

    def __init__(self, name: str, leading: tuple[int, ...], parts: Sequence[Source]) -> None:
        self.name = self.tier = name
        self._leading = leading
        for part in parts:
            if part.shape != parts[0].shape:
                raise BindError(
                    f"{name}: stacks tensors of one shape, but {part.name} is {list(part.shape)} and "
                    f"{parts[0].name} is {list(parts[0].shape)}"
                )
        dtypes = {part.dtype for part in parts}
        mixed = len(dtypes) > 1
        self.parts = tuple(expanded_to(part, DTYPES["f32"]) if mixed else part for part in parts)
        for part in self.parts:
            if part.dtype != self.parts[0].dtype:
                raise BindError(
                    f"{name}: stacks tensors of one type, but {part.name} is {part.dtype} and "
                    f"{self.parts[0].name} is {self.parts[0].dtype}"
                )
        self.dtype = self.parts[0].dtype
        self.transferred = min(map(transfer_itemsize, self.parts))
        self.shape = (*leading, *parts[0].shape)
        self._layout = c_layout(self.shape, self.dtype.itemsize, 0)

    def expanded_to(self, dtype: DType) -> StackedSource:
        """The stack with every part converted to another float type."""
        return StackedSource(self.name, self._leading, [expanded_to(part, dtype) for part in self.parts])

    def extent(self, region: Region) -> Extent:
        """The region's extent in a contiguous tensor."""
        return self._layout.extent(region)

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out`` part by part."""
        self._layout.check(region)
        within = region[len(self._leading) :]
        return sum(part.read(within, out[at]) for at, part in self._touched(region))

    def require_unchanged(self) -> None:
        """Check that the files of all parts have not changed."""
        for part in self.parts:
            require_unchanged(part)

    def release(self, region: Region) -> None:
        """Drop the region's pages from the page cache."""
        for _, part in self._touched(region):
            part.release(region[len(self._leading) :])

    def close(self) -> None:
        """Close all parts; the first one, whose file the others may share, last."""
        for part in reversed(self.parts):
            part.close()

    def _touched(self, region: Region) -> Iterator[tuple[tuple[Any, ...], Source]]:
        """Yield the parts that the region overlaps, each with its window in the region."""
        leading = region[: len(self._leading)]
        for place in itertools.product(*(range(*axis) for axis in leading)):
            number = sum(p * math.prod(self._leading[a + 1 :]) for a, p in enumerate(place))
            yield (*(p - start for p, (start, _) in zip(place, leading, strict=True)), ...), self.parts[number]
