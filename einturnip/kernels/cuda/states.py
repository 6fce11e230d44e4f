"""Aggregation states in C++: types, and statements that load, store and finalize them."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import DType
from einturnip.kernels.cuda.arguments import Place, TileArgument, product
from einturnip.kernels.cuda.scalars import ctype

_NAMES = {"sum": "Sum", "mean": "Sum", "prod": "Prod", "max": "Max", "min": "Min", "logsumexp": "LogSumExp"}


def value_type(aggregation: Aggregation) -> DType:
    """Return the dtype in which values are folded."""
    return aggregation.state[0].accumulator


def state_type(aggregation: Aggregation) -> str:
    """Return the C++ type of a state in registers."""
    s = ctype(value_type(aggregation))
    match aggregation.op:
        case "any" | "all":
            return aggregation.op.capitalize()
        case "argmax" | "argmin":
            return f"Best<{s}, {'true' if aggregation.op == 'argmax' else 'false'}>"
        case "pick":
            return f"Pick<{s}>"
        case "mean" if len(aggregation.state) == 2:
            return f"Counted<{s}>"
        case op:
            return f"{_NAMES[op]}<{s}>"


def state_nbytes(aggregation: Aggregation) -> int:
    """Return an upper bound of the size of the state's C++ type."""
    both = value_type(aggregation).itemsize + (8 if len(aggregation.state) > 1 or aggregation.op == "pick" else 0)
    return 8 if both <= 8 else 16 if both <= 16 else 32


def load_state(aggregation: Aggregation, name: str, tensors: Sequence[TileArgument], at: Place) -> list[str]:
    """Return statements that declare a state and read it from its components."""
    lines = [f"{state_type(aggregation)} {name};"]
    for field, tensor, dtype in zip("ab", tensors, _registers(aggregation), strict=False):
        lines.append(f"{name}.{field} = to<{ctype(dtype)}>(f, {tensor.load(at)});")
    return [*lines, f"{name}.hit = is_nonzero({name}.a);"] if aggregation.op == "pick" else lines


def store_state(aggregation: Aggregation, name: str, tensors: Sequence[TileArgument], at: Place) -> list[str]:
    """Return statements that write a state to its components."""
    return [
        tensor.store(at, f"to<{ctype(tensor.dtype)}>(f, {name}.{field})")
        for field, tensor in zip("ab", tensors, strict=False)
    ]


def accumulate_state(aggregation: Aggregation, name: str, tensors: Sequence[TileArgument], at: Place) -> list[str]:
    """Return statements that combine a state with the one in memory.

    The first call stores the state.
    """
    return [
        "if (!h.first) {",
        *["  " + line for line in load_state(aggregation, "old", tensors, at)],
        f"  old.combine(f, {name});",
        f"  {name} = old;",
        "}",
        *store_state(aggregation, name, tensors, at),
    ]


def _registers(aggregation: Aggregation) -> tuple[DType, ...]:
    return (value_type(aggregation), *aggregation.state[1:])


def finalized(aggregation: Aggregation, name: str, aggregated: Sequence[int], result: DType) -> str:
    """Return C++ for the result of a state, converted to the dtype ``result``."""
    wide = value_type(aggregation)
    s = ctype(wide)
    match aggregation.op:
        case "argmax" | "argmin":
            return f"to<{ctype(result)}>(f, {name}.b)"
        case "mean":
            points = f"{name}.b" if len(aggregation.state) == 2 else f"({product(aggregated, 'bound')})"
            made = f"ein::div(f, {name}.a, to<{s}>(f, {points}))"
        case "logsumexp":
            made = f"({name}.b == 0 ? {name}.a : {name}.a + log_({name}.b))"
        case _:
            made = f"{name}.a"
    return f"to<{ctype(result)}>(f, {made})"
