"""``einsum`` with NumPy's signature, ``contract`` with opt_einsum's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from einturnip.api import call_cache, plan_cache
from einturnip.api.call_planning import Planned, plan_undisturbed
from einturnip.api.call_settings import Settings, Size, Target
from einturnip.api.cluster_call import run_on
from einturnip.api.contraction_path import chosen_path
from einturnip.api.einsum_arguments import (
    Casting,
    Order,
    computed_dtype,
    memory_order,
    require_casting,
    require_target,
)
from einturnip.api.jobs import Job
from einturnip.api.plan_cache import CachedPlan
from einturnip.api.program import File, Program, compile
from einturnip.api.run_program import run_arrays, run_job
from einturnip.api.subscripts import BoundSubscripts, Subscripts, bind, parse, program_text
from einturnip.core.errors import BindError
from einturnip.ir.dtypes import DType
from einturnip.storage.open import open_source


def einsum(
    *operands: Any,
    out: Target | None = None,
    dtype: Any = None,
    order: Order | None = "K",
    casting: Casting = "safe",
    optimize: Any = True,
    memory: Size | None = None,
    arena: Size | None = None,
    workers: int | None = None,
    spill: str | os.PathLike[str] | None = None,
    link: str | None = None,
    force: bool = False,
    client: Any = None,
    retries: int = 0,
) -> Any:
    """Einstein summation, as ``np.einsum``, within a given memory.

    Subscripts are letters (``"ij,jk->ik"``, also opt_einsum's symbols), names (``"batch seq, seq dim -> batch dim"``),
    or lists of numbers or names after each operand (``a, [0, 1], b, [1, 2], [0, 2]``), for any number of operands.
    Operands are arrays (also Dask's, and CuPy's on a GPU, where the result stays), paths or ``et.open`` handles;
    ``out`` is an array or a path. ``dtype``, ``out``,
    ``casting`` and ``order`` mean what they mean in NumPy: the computation uses ``dtype``, or the common type of
    operands and ``out``; ``casting`` restricts the conversions to it, and from it to ``out``; a new result is in C
    order unless ``order`` says otherwise. f16 and bf16 are accumulated in f32. Many operands are contracted in pairs,
    in the order that einturnip chooses, or that of ``optimize``: an optimizer of opt_einsum by name, or a path,
    optimizer or tree of opt_einsum or cotengra. ``force=True`` runs a
    contraction although it takes longer than a week, or makes a tensor larger than memory and disk together.
    ``client``: a Dask client whose workers run the contraction, each within ``memory``; ``out="dask"`` then returns a
    ``dask.array`` whose blocks stay on the workers. ``link``: the rate and latency between two workers, such as
    ``1.25GB/s,50us``. ``retries``: how often a run that lost a worker is planned anew for those that are left.

    Raises:
        BindError: subscripts and operands disagree; a ValueError. DTypeError: types do not fit; a BindError and a
            TypeError. CapacityError: it does not fit in ``memory``. DeviceError, RunError: the workers cannot be used,
            or one has failed.

        >>> import numpy as np, einturnip as et
        >>> a = np.arange(6.0).reshape(2, 3)
        >>> et.einsum("ij,kj->ik", a, a)
        array([[ 5., 14.],
               [14., 50.]])
    """
    text = bool(operands) and isinstance(operands[0], str)
    if casting != "safe":
        require_casting(casting)
    plain = (order == "K" or order == "C") and casting == "safe" and out is spill is link is client is None
    plain = plain and (optimize is True or optimize is False)
    key = None
    if plain and not retries and operands and type(operands[0]) is str:
        budget = plan_cache.free_share() if memory is None and arena is None else (memory, arena)
        key = call_cache.key_of((operands[0], dtype, budget, workers), operands[1:])
    repeated = call_cache.run(key, operands[1:], run_arrays)
    if repeated is not None:
        return repeated if repeated.ndim else repeated[()]
    require_target(out)
    rows = memory_order(order, operands[1:] if text else operands[::2]) == "C" or out is not None
    targets = {} if out is None else {"result": out}
    settings = Settings(memory, arena, workers, targets, spill, force=force, link=link, retries=retries)
    settings.require_client(client)
    given = operands[1:] if text else operands[::2]
    settings = settings.on_device_of({f"operand {k}": value for k, value in enumerate(given)})
    is_scalar, converted, names = False, False, list[str]()

    def bound() -> tuple[Program, Settings, dict[str, Any]]:
        nonlocal is_scalar, converted, names
        readings, values = parse(operands)
        values = [_operand(value) for value in values]
        contraction, dtypes = _bound(readings, values)
        computed = computed_dtype(dtypes, dtype, casting, out)
        if isinstance(out, np.ndarray) and out.dtype != computed.numpy:
            shape = tuple(contraction.sizes[label] for label in contraction.output)
            if out.shape != shape:
                raise BindError(f"the result of einsum is {list(shape)}, but the array given for it {list(out.shape)}")
            converted = True
        if not rows:  # the transposed result, in C order
            contraction = replace(contraction, output=contraction.output[::-1])
        program = _compiled(program_text(contraction, dtypes, computed, chosen_path(optimize, contraction)))
        data = {f"operand{position}": value for position, value in enumerate(values)}
        is_scalar, names = not contraction.output, list(data)
        return program, replace(settings, out={}) if converted else settings, data

    def plan() -> Planned:
        before = settings.before()
        program, chosen, data = bound()
        return program.job(chosen, data, before=before)

    if client is not None:
        program, chosen, data = bound()
        result = run_on(client, program.sized(), chosen, data)["result"]
    else:
        job, cached = plan_undisturbed(settings, plan)
        assert isinstance(job, Job) and isinstance(cached, CachedPlan)  # an einsum has no loop
        try:
            result = run_job(job, cached, None, None)["result"]
        finally:
            job.close()
        call_cache.remember(key, cached, job, names)
    if converted:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            assert isinstance(out, np.ndarray)
            np.copyto(out, result, casting=casting)
        return out
    if out is None and is_scalar:
        return result[()]
    return result if rows else result.T


def contract(
    *operands: Any,
    out: Target | None = None,
    dtype: Any = None,
    order: Order | None = "K",
    casting: Casting = "safe",
    optimize: Any = True,
    memory: Size | None = None,
    arena: Size | None = None,
    workers: int | None = None,
    spill: str | os.PathLike[str] | None = None,
    link: str | None = None,
    force: bool = False,
    client: Any = None,
    retries: int = 0,
) -> Any:
    """``opt_einsum.contract`` within a given memory: ``einsum`` under opt_einsum's name.

    >>> import numpy as np, einturnip as et
    >>> et.contract([1.0, 2.0], ["left"], [3.0, 4.0], ["right"], ["right", "left"])
    array([[3., 6.],
           [4., 8.]])
    """
    return einsum(
        *operands,
        out=out,
        dtype=dtype,
        order=order,
        casting=casting,
        optimize=optimize,
        memory=memory,
        arena=arena,
        workers=workers,
        spill=spill,
        link=link,
        force=force,
        client=client,
        retries=retries,
    )


def _bound(readings: Sequence[Subscripts], values: list[Any]) -> tuple[BoundSubscripts, list[DType]]:
    """Bind a call's subscripts to its operands; also return their dtypes."""
    sources = [open_source(value, f"operand {position}") for position, value in enumerate(values)]
    try:
        shapes = [source.shape for source in sources]
        dtypes = [source.dtype for source in sources]
    finally:
        for source in sources:
            source.close()
    return bind(readings, shapes), dtypes


@lru_cache(maxsize=256)
def _compiled(text: str) -> Program:
    return compile(text)


def _operand(value: Any) -> Any:
    if isinstance(value, File):
        return value.spec
    return os.fspath(value) if isinstance(value, os.PathLike) else value
