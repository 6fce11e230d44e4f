"""``einsum`` with NumPy's signature, ``contract`` with opt_einsum's."""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from einturnip.api import plan_cache
from einturnip.api.plan_cache import Kept
from einturnip.api.program import File, Program, Settings, Size, Target, compile
from einturnip.api.running import run_arrays, run_job
from einturnip.api.subscripts import Contraction, Subscripts, bind, parse, program_text
from einturnip.core.dtypes import DType, from_numpy, promote
from einturnip.core.errors import BindError
from einturnip.eingraph.types import InputNode
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
    key = None if out is not None or spill is not None else _key(operands, dtype, memory, arena, workers)
    quick = _quick.get(key) if key is not None else None
    if quick is not None:
        again = quick.run(operands[1:])
        if again is not None:
            return again
    settings = Settings(memory, arena, workers, {} if out is None else {"result": out}, spill)
    before = settings.before()
    readings, values = parse(operands)
    values = [_operand(value) for value in values]
    contraction, program = _program(readings, values, dtype)
    data = {f"operand{position}": value for position, value in enumerate(values)}
    job, kept = program.job(settings, data, before=before)
    try:
        result = run_job(job, kept, None, None)["result"]
    finally:
        job.close()
    if key is not None and kept.ready.again:
        if len(_quick) >= MOST_QUICK:
            _quick.clear()
        _quick[key] = _Quick.of(kept, not contraction.output)
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


# Calls that are known again by their arguments' shapes alone.
MOST_QUICK = 256


@dataclass(frozen=True, slots=True)
class _Quick:
    """A call of ``einsum`` that was made before. ``operands``: the number of each node's operand."""

    kept: weakref.ref[Kept]
    operands: tuple[int | None, ...]
    scalar: bool

    @classmethod
    def of(cls, kept: Kept, scalar: bool) -> _Quick:
        nodes = kept.planned.graph.nodes
        numbers = (int(n.name.removeprefix("operand")) if isinstance(n, InputNode) else None for n in nodes)
        return cls(weakref.ref(kept), tuple(numbers), scalar)

    def run(self, arrays: Sequence[Any]) -> Any:
        """The result for new arrays; None where the plan is kept no more."""
        kept = self.kept()
        if kept is None:
            return None
        kept.use()
        result = run_arrays(kept, [None if p is None else arrays[p] for p in self.operands])
        return result[()] if result is not None and self.scalar else result


_quick: dict[Hashable, _Quick] = {}


def _key(operands: Sequence[Any], dtype: Any, memory: Any, arena: Any, workers: Any) -> Hashable | None:
    """What a call's plan depends on, if its operands are arrays; all of it is seen without a copy or a system call."""
    if not operands or type(operands[0]) is not str or not all(type(a) is np.ndarray for a in operands[1:]):
        return None
    arrays = tuple((a.shape, a.strides, a.dtype) for a in operands[1:])
    budget = plan_cache.free_share() if memory is None and arena is None else (memory, arena)
    key = operands[0], arrays, dtype, budget, workers, plan_cache.machine_key()
    try:
        hash(key)
    except TypeError:
        return None
    return key


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
