"""Aggregation states in C++: types, and statements that load, store and finalize them."""

from __future__ import annotations

from collections.abc import Sequence

from einturnip.ir.aggregations import Aggregation
from einturnip.ir.dtypes import I64, DType
from einturnip.ir.scalar import OperandRef, ScalarCast
from einturnip.kernels.cuda.arguments import Place, TileArgument, product
from einturnip.kernels.cuda.scalars import ctype, nested

_TYPES = {
    "add": "Sum<{s}>",
    "mul": "Prod<{s}>",
    "max": "Max<{s}>",
    "min": "Min<{s}>",
    "or": "Any",
    "and": "All",
    "first_max": "Best<{s}, true>",
    "first_min": "Best<{s}, false>",
    "log_add": "LogSumExp<{s}>",
    "pick": "Pick<{s}>",
}


def value_type(aggregation: Aggregation) -> DType:
    """Return the dtype in which values are folded."""
    return aggregation.state[0].accumulator


def state_type(aggregation: Aggregation) -> str:
    """Return the C++ type of a state in registers."""
    counted = aggregation.combine == "add" and len(aggregation.state) == 2
    return ("Counted<{s}>" if counted else _TYPES[aggregation.combine]).format(s=ctype(value_type(aggregation)))


def state_nbytes(aggregation: Aggregation) -> int:
    """Return an upper bound of the size of the state's C++ type."""
    if len(aggregation.state) == 1 and aggregation.combine != "pick":
        return value_type(aggregation).itemsize
    both = value_type(aggregation).itemsize + 8
    return 8 if both <= 8 else 16 if both <= 16 else 32


def load_state(aggregation: Aggregation, name: str, tensors: Sequence[TileArgument], at: Place) -> list[str]:
    """Return statements that declare a state and read it from its components."""
    lines = [f"{state_type(aggregation)} {name};"]
    for field, tensor, dtype in zip("ab", tensors, _registers(aggregation), strict=False):
        lines.append(f"{name}.{field} = to<{ctype(dtype)}>(f, {tensor.load(at)});")
    return [*lines, f"{name}.hit = is_nonzero({name}.a);"] if aggregation.combine == "pick" else lines


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
    finalize, first = aggregation.row.finalize, value_type(aggregation)
    if finalize is None:
        made = f"{name}.a"
    elif aggregation.combine == "log_add":  # sets no flag for the logarithm of an empty sum
        made = f"({name}.b == 0 ? {name}.a : {name}.a + log_({name}.b))"
    else:
        counted = aggregation.row.finalize_reads_count and len(aggregation.state) == 2
        state = tuple(OperandRef(k, dtype) for k, dtype in enumerate(_registers(aggregation)))
        leaves = [f"{name}.a", f"{name}.b", f"{name}.b" if counted else f"({product(aggregated, 'bound')})"]
        made = nested(finalize(state, ScalarCast(OperandRef(2, I64), first)), leaves)
    return f"to<{ctype(result)}>(f, {made})"
