"""Kernels of tiles without points: they write the identity of the aggregation, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from einturnip.ir.einsum import Einsum
from einturnip.ir.evaluate import finalize_state, identity_state
from einturnip.kernels.expr.graph import number
from einturnip.kernels.fp_status import INVALID
from einturnip.kernels.protocol import CallArguments, KernelCall, PreparableKernel, PythonCall


@dataclass(frozen=True)
class FillKernel(PreparableKernel):
    """Writes one number to each output."""

    values: tuple[np.ndarray[Any, np.dtype[Any]], ...]
    always: bool
    status: int = 0
    workspace_nbytes: int = 0

    def prepare(self, arguments: CallArguments) -> KernelCall:
        """See HostKernel. An accumulation that is not the first leaves the state unchanged."""
        outs = arguments.outs if self.values and (arguments.first or self.always) else ()

        def run() -> int:
            for out, value in zip(outs, self.values, strict=False):
                np.copyto(out, value)
            return self.status

        return PythonCall(run)


def compile_empty(einsum: Einsum, extents: tuple[int, ...], mode: Literal["full", "accumulate"]) -> FillKernel:
    """Compile the kernel of a tile without points along its aggregated labels."""
    aggregation = einsum.aggregation
    assert aggregation is not None
    values = [number(v, d) for v, d in zip(aggregation.identity, aggregation.state, strict=True)]
    if mode == "accumulate":
        return FillKernel(tuple(values), always=False)
    result = finalize_state(einsum, identity_state(einsum, ()))
    return FillKernel((result,), always=True, status=INVALID if np.isnan(result) else 0)


NOTHING = FillKernel((), always=False)
