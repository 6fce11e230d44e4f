"""``einsum`` with NumPy's signature, ``contract`` with opt_einsum's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from einturnip.api import plan_cache, quick
from einturnip.api.call_settings import Settings, Size, Target
from einturnip.api.jobs import Job
from einturnip.api.plan_cache import Kept
from einturnip.api.program import File, Program, compile, planned_undisturbed
from einturnip.api.running import run_arrays, run_job
from einturnip.api.subscripts import Contraction, Subscripts, bind, parse, program_text
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
    key = None
    if operands and type(operands[0]) is str and out is None and spill is None:
        budget = plan_cache.free_share() if memory is None and arena is None else (memory, arena)
        key = quick.key_of((operands[0], dtype, budget, workers), operands[1:])
    again = quick.run(key, operands[1:], run_arrays)
    if again is not None:
        return again if again.ndim else again[()]
    settings = Settings(memory, arena, workers, {} if out is None else {"result": out}, spill)
    is_scalar, names = False, list[str]()

    def plan() -> tuple[Job, Kept]:
        nonlocal is_scalar, names
        before = settings.before()
        readings, values = parse(operands)
        values = [_operand(value) for value in values]
        contraction, program = _program(readings, values, dtype)
        data = {f"operand{position}": value for position, value in enumerate(values)}
        is_scalar, names = not contraction.output, list(data)
        return program.job(settings, data, before=before)

    job, kept = planned_undisturbed(settings, plan)
    try:
        result = run_job(job, kept, None, None)["result"]
    finally:
        job.close()
    quick.remember(key, kept, job, names)
    return result[()] if out is None and is_scalar else result


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


def _program(readings: Sequence[Subscripts], values: list[Any], dtype: Any) -> tuple[Contraction, Program]:
    """The contraction that a call asks for, and its program."""
    sources = [open_source(value, f"operand {position}") for position, value in enumerate(values)]
    try:
        shapes = [source.shape for source in sources]
        dtypes = [source.dtype for source in sources]
    finally:
        for source in sources:
            source.close()
    contraction = bind(readings, shapes)
    return contraction, _compiled(program_text(contraction, dtypes, _result_dtype(dtypes, dtype)))


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
