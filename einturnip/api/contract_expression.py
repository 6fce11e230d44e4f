"""Entry points of opt_einsum: contractions of given shapes, and ``tensordot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from einturnip.api.einsum import einsum
from einturnip.api.subscripts import bind, parse
from einturnip.core.errors import BindError
from einturnip.storage.open import open_source


class ContractExpression:
    """A contraction of given shapes; call it with its operands. See ``contract_expression``."""

    def __init__(
        self, subscripts: str, shapes: Sequence[tuple[int, ...]], constants: Mapping[int, Any], options: dict[str, Any]
    ) -> None:
        self._subscripts, self._shapes, self._constants, self._options = subscripts, tuple(shapes), constants, options

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Contract the arrays of the operands that are no constants, in order; ``out`` as in ``einsum``.

        Raises:
            BindError: another number of arrays, or an array of another shape.
        """
        expected = len(self._shapes) - len(self._constants)
        if len(arrays) != expected:
            raise BindError(
                f"the expression '{self._subscripts}' takes {expected} arrays, but {len(arrays)} were given"
            )
        given = iter(arrays)
        operands = [self._constants[k] if k in self._constants else next(given) for k in range(len(self._shapes))]
        for k, operand in enumerate(operands):
            shape = getattr(operand, "shape", None)
            if shape is not None and tuple(shape) != self._shapes[k]:
                raise BindError(
                    f"operand {k} of the expression '{self._subscripts}' has shape {list(self._shapes[k])}, but the "
                    f"array given for it {list(shape)}"
                )
        return einsum(self._subscripts, *operands, out=out, **self._options)

    def __repr__(self) -> str:
        """Return the subscripts and the shapes."""
        return f"ContractExpression({self._subscripts!r}, {', '.join(map(str, self._shapes))})"


def contract_expression(
    subscripts: str, *shapes: Any, constants: Sequence[int] = (), optimize: Any = True, **options: Any
) -> ContractExpression:
    """Return a contraction of these shapes to call, as ``opt_einsum.contract_expression``.

    ``constants``: positions of operands that are given here as arrays instead of shapes. Other options are those of
    ``einsum``, such as ``memory``.

    Raises:
        BindError: subscripts, shapes and ``optimize`` disagree.

        >>> import numpy as np, einturnip as et
        >>> et.contract_expression("ij,jk->ik", (1, 2), (2, 1))(np.ones((1, 2)), np.ones((2, 1)))
        array([[2.]])
    """
    from einturnip.api.contraction_path import chosen_path

    fixed, found = {}, list[tuple[int, ...]]()
    for k, given in enumerate(shapes):
        if k in constants:
            fixed[k] = given
            source = open_source(getattr(given, "spec", given), f"operand {k}")
            found.append(source.shape)
            source.close()
        else:
            try:
                found.append(tuple(int(n) for n in given))
            except TypeError:
                raise BindError(f"operand {k}: {given!r} is no shape. help: constants=[{k}] takes an array") from None
    contraction = bind(parse((subscripts, *shapes))[0], found)
    path = chosen_path(optimize, contraction)
    chosen = optimize if path is None else path
    return ContractExpression(subscripts, found, fixed, {"optimize": chosen, **options})


def tensordot(a: Any, b: Any, axes: int | Sequence[Any] = 2) -> Any:
    """``np.tensordot``, which opt_einsum calls for ``backend="einturnip"``.

    ``axes``: the number of last axes of ``a`` and first axes of ``b`` to sum over, or two lists of axes.

    Raises:
        BindError: the axes do not match the arrays.

        >>> import numpy as np, einturnip as et
        >>> et.tensordot(np.ones((2, 3)), np.ones((3, 1)), 1)
        array([[3.],
               [3.]])
    """
    ranks = len(a.shape), len(b.shape)
    if isinstance(axes, int):
        pairs = list(zip(range(ranks[0] - axes, ranks[0]), range(axes), strict=True))
    else:
        left, right = ([axis] if isinstance(axis, int) else list(axis) for axis in axes)
        if len(left) != len(right):
            raise BindError(f"tensordot sums over {len(left)} axes of one array and {len(right)} of the other")
        pairs = list(zip(left, right, strict=True))
    if any(not -n <= axis < n for pair in pairs for axis, n in zip(pair, ranks, strict=True)):
        raise BindError(f"tensordot: arrays of {ranks[0]} and {ranks[1]} axes have no axes {axes}")
    first, second = list(range(ranks[0])), list(range(ranks[0], sum(ranks)))
    for x, y in pairs:
        second[y] = first[x]
    summed = {first[x] for x, _ in pairs}
    return einsum(a, first, b, second, [label for label in (*first, *second) if label not in summed])
