"""Contraction paths of a caller: from NumPy, opt_einsum or cotengra, and ``einsum_path``."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from einturnip.api.subscripts import BoundSubscripts, bind, parse
from einturnip.core.errors import BindError, DTypeError, EinturnipError
from einturnip.storage.open import open_source

Path: TypeAlias = tuple[tuple[int, ...], ...]
"""Steps: the positions of the operands that are contracted, which are removed; their product is appended."""

_OWN_CHOICE = frozenset({"auto", "auto-hq"})
_OPTIMIZERS = frozenset({
    *("greedy", "optimal", "dp", "dynamic-programming", "eager", "opportunistic"),
    *("branch-all", "branch-2", "branch-1", "random-greedy", "random-greedy-128"),
})  # fmt: skip


def chosen_path(optimize: object, contraction: BoundSubscripts) -> Path | None:
    """The path that ``optimize`` asks for; None if einturnip chooses the order.

    It is a truth value, ``auto`` or ``auto-hq`` (einturnip chooses), the name of an optimizer of opt_einsum, also with
    a number of elements, a path, a ``PathInfo``, an optimizer of opt_einsum or cotengra, or a tree of cotengra.

    Raises:
        BindError: it is nonsense, or no path for these operands. DTypeError: it is of another type.
    """
    if optimize is None or isinstance(optimize, bool | np.bool_):
        return None
    n = len(contraction.terms)
    if isinstance(optimize, str):
        return _of_optimizer(optimize, None, contraction)
    if hasattr(optimize, "get_path"):  # a cotengra tree
        return _checked(_asked(optimize.get_path, optimize), n)
    if callable(optimize):
        inputs, output, sizes = _sets(contraction)
        # opt_einsum's optimizers take a limit on the memory too, cotengra's do not.
        limit = (None,) if _takes(optimize, 4) else ()
        return _checked(_asked(lambda: optimize(inputs, output, sizes, *limit), optimize), n)
    if hasattr(optimize, "path"):  # opt_einsum's PathInfo
        return _checked(optimize.path, n)
    if not isinstance(optimize, Sequence) or not len(optimize):
        raise DTypeError(f"optimize={optimize!r} is neither a truth value, an optimizer's name nor a path")
    if isinstance(optimize[0], str) and optimize[0] != "einsum_path":
        _require_name(optimize[0])
        if len(optimize) != 2 or not isinstance(optimize[1], Real):
            raise BindError(f"optimize={optimize!r}: an optimizer's name goes with a number of elements")
        return _of_optimizer(optimize[0], float(optimize[1]), contraction)
    return _checked(optimize[1:] if isinstance(optimize[0], str) else optimize, n)


def _require_name(name: str) -> None:
    if name not in _OPTIMIZERS | _OWN_CHOICE:
        known = ", ".join(sorted(_OPTIMIZERS | _OWN_CHOICE))
        raise BindError(f"optimize={name!r} names no optimizer. help: one of {known}")


def _of_optimizer(name: str, limit: float | None, contraction: BoundSubscripts) -> Path | None:
    """The path of an optimizer of opt_einsum. ``limit``: the maximum of elements of an intermediate."""
    _require_name(name)
    if name in _OWN_CHOICE or len(contraction.terms) < 3:
        return None
    from opt_einsum.paths import get_path_fn

    inputs, output, sizes = _sets(contraction)
    bound = None if limit is None or not math.isfinite(limit) else int(limit)
    return _checked(_asked(lambda: get_path_fn(name)(inputs, output, sizes, bound), name), len(inputs))


def _sets(contraction: BoundSubscripts) -> tuple[list[frozenset[Any]], frozenset[Any], dict[Any, int]]:
    """The labels of each operand and of the result, and all sizes, as optimizers take them."""
    inputs = [frozenset(label for label in term if label is not None) for term in contraction.terms]
    return inputs, frozenset(contraction.output), dict(contraction.sizes)


def _takes(function: Callable[..., Any], count: int) -> bool:
    """True if a function takes this number of positional arguments, or does not say."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _asked(ask: Any, optimize: object) -> Any:
    try:
        return ask()
    except EinturnipError:
        raise
    except Exception as error:
        raise BindError(
            f"optimize: the {type(optimize).__name__} given finds no path: {type(error).__name__}: {error}"
        ) from error


def _checked(path: Any, n_operands: int) -> Path:
    """The path with its positions as integers.

    Raises:
        BindError: it does not contract the operands to one. DTypeError: it is no path.
    """
    remaining, steps = n_operands, list[tuple[int, ...]]()
    try:
        given = list(path)
    except TypeError:
        raise DTypeError(f"optimize: {path!r} is no path. help: a list of tuples of positions") from None
    for step in given:
        try:
            positions = sorted({operator.index(k) for k in step})
        except TypeError:
            raise DTypeError(
                f"optimize: {step!r} is no step of a path. help: tuples of positions, such as (0, 1)"
            ) from None
        if not positions or len(positions) != len(step) or positions[0] < 0 or positions[-1] >= remaining:
            raise BindError(
                f"optimize: step {tuple(step)} of the path takes operands of 0 .. {remaining - 1}, each once"
            )
        remaining -= len(positions) - 1
        steps.append(tuple(positions))
    if remaining != 1:
        raise BindError(f"optimize: after the path {remaining} of {n_operands} operands are left, where one should be")
    return tuple(steps)


def einsum_path(*operands: Any, optimize: Any = True) -> tuple[list[Any], str]:
    """Return a path for ``einsum``, and its description, as ``np.einsum_path`` does.

    The path starts with ``"einsum_path"`` and is a value of ``optimize`` of ``einsum``, also of NumPy's. Without
    ``optimize`` it has the fewest operations; in ``einsum``, an order with more may fit the memory better.

    Raises:
        BindError: subscripts, operands and ``optimize`` disagree.

        >>> import numpy as np, einturnip as et
        >>> a = np.ones((2, 50))
        >>> et.einsum_path("ij,kj,kl->il", a, a, a)[0]
        ['einsum_path', (0, 1), (0, 1)]
    """
    readings, values = parse(operands)
    sources = [open_source(getattr(value, "spec", value), f"operand {k}") for k, value in enumerate(values)]
    shapes = [source.shape for source in sources]
    for source in sources:
        source.close()
    contraction = bind(readings, shapes)
    path = chosen_path(optimize, contraction)
    if path is None:
        path = _own_path(contraction)
    return ["einsum_path", *path], _described(path, contraction)


def _own_path(contraction: BoundSubscripts) -> Path:
    if len(contraction.terms) == 1:
        return ((0,),)
    from einturnip.eingraph.rewrite.contraction_order import contraction_order

    numbers = {label: k for k, label in enumerate(contraction.sizes)}
    inputs, output, _ = _sets(contraction)
    factors = [frozenset(numbers[label] for label in term) for term in inputs]
    sizes = {numbers[label]: n for label, n in contraction.sizes.items()}
    return tuple(contraction_order(factors, frozenset(numbers[label] for label in output), sizes, None))


def _described(path: Path, contraction: BoundSubscripts) -> str:
    """A line for each step: its labels, and the elements and operations that it takes."""
    lines = [f"{contraction.text}: {len(contraction.terms)} operands"]
    terms, output, sizes = _sets(contraction)
    for step in path:
        taken = [terms.pop(k) for k in sorted(step, reverse=True)]
        either = frozenset[Any]().union(*taken)
        kept = either & output.union(*terms)
        terms.append(kept)
        size, work = math.prod(sizes[p] for p in kept), math.prod(sizes[p] for p in either)
        shown = " ".join(map(str, sorted(kept, key=str))) or "a scalar"
        lines.append(f"{step}: {shown}, {size:,} elements of {work:,} products")
    return "\n".join(lines)
