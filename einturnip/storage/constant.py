"""A tensor with the same number in every element, such as a state before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.storage.layout import c_layout
from einturnip.storage.types import Array, Extent, Region


@dataclass(frozen=True)
class ConstantSource:
    """A source of one number; nothing is stored and nothing transferred."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    value: bool | int | float | complex
    transferred: ClassVar[float] = 0.0

    @property
    def tier(self) -> str:
        """The tensor itself."""
        return self.name

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``; no bytes are transferred."""
        with np.errstate(over="ignore"):
            out[...] = np.asarray(self.value).astype(self.dtype.numpy)
        return 0

    def extent(self, region: Region) -> Extent:
        """The region's extent in a file of this tensor alone."""
        return c_layout(self.shape, self.dtype.itemsize, 0).extent(region)

    def release(self, region: Region) -> None:
        """Nothing to do: nothing is stored."""

    def close(self) -> None:
        """Nothing to do: nothing is held."""
