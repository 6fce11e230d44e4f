"""``einsum`` with NumPy's signature, ``contract`` with opt_einsum's."""

from __future__ import annotations

import os
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from einturnip.api.program import File, Program, Size, Target, compile
from einturnip.api.subscripts import bind, parse, program_text
from einturnip.core.dtypes import DType, from_numpy, promote
from einturnip.core.errors import BindError
from einturnip.stores.open import open_source


def einsum(
    *operands: Any,
    out: Target | None = None,
    dtype: Any = None,
    optimize: Any = True,
    memory: Size | None = None,
    arena: Size | None = None,
    workers: int | None = None,
    spill: str | os.PathLike[str] | None = None,
) -> Any:
    """Einstein's summation, as ``np.einsum``, in no more memory than asked for.

    Subscripts are letters (``"ij,jk->ik"``, opt_einsum's further symbols too), names (``"batch seq, seq dim -> batch
    dim"``), or lists of numbers or names beside their operands (``a, [0, 1], b, [1, 2], [0, 2]``), as many as you like.
    Operands are arrays, paths or ``et.open`` handles; ``out`` an array or a path. The result has the operands' common
    dtype, or ``dtype``; f16 and bf16 are summed in f32. Many operands are contracted in pairs, always in the order that
    einturnip finds best: ``optimize`` is there for calls written for NumPy, and changes nothing.

    Raises:
        BindError: subscripts and operands disagree. CapacityError: it does not fit in ``memory``.

        >>> import numpy as np, einturnip as et
        >>> a = np.arange(6.0).reshape(2, 3)
        >>> et.einsum("ij,kj->ik", a, a)
        array([[ 5., 14.],
               [14., 50.]])
    """
    readings, values = parse(operands)
    values = [_operand(value) for value in values]
    sources = [open_source(value, f"operand {position}") for position, value in enumerate(values)]
    try:
        shapes = [source.shape for source in sources]
        dtypes = [source.dtype for source in sources]
    finally:
        for source in sources:
            source.close()
    contraction = bind(readings, shapes)
    program = _compiled(program_text(contraction, dtypes, _result_dtype(dtypes, dtype)))
    result = program(
        data={f"operand{position}": value for position, value in enumerate(values)},
        memory=memory,
        arena=arena,
        workers=workers,
        spill=spill,
        out={} if out is None else {"result": out},
    )["result"]
    return result[()] if out is None and not contraction.output else result


def contract(
    *operands: Any,
    out: Target | None = None,
    dtype: Any = None,
    optimize: Any = True,
    memory: Size | None = None,
    arena: Size | None = None,
    workers: int | None = None,
    spill: str | os.PathLike[str] | None = None,
) -> Any:
    """``opt_einsum.contract`` in no more memory than asked for: ``einsum`` under the name that its calls have.

    >>> import numpy as np, einturnip as et
    >>> et.contract([1.0, 2.0], ["left"], [3.0, 4.0], ["right"], ["right", "left"])
    array([[3., 6.],
           [4., 8.]])
    """
    return einsum(
        *operands,
        out=out,
        dtype=dtype,
        optimize=optimize,
        memory=memory,
        arena=arena,
        workers=workers,
        spill=spill,
    )


@lru_cache(maxsize=256)
def _compiled(text: str) -> Program:
    return compile(text)


def _operand(value: Any) -> Any:
    if isinstance(value, File):
        return value.spec
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _result_dtype(dtypes: list[DType], asked: Any) -> DType:
    if asked is None:
        return reduce(promote, dtypes)
    try:
        return from_numpy(np.dtype(asked))
    except (KeyError, TypeError):
        raise BindError(f"einsum cannot give dtype {asked!r}") from None
