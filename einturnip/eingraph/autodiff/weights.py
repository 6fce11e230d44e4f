"""Weights of the points of an aggregation in the adjoint of its result.

The derivative in the aggregation's row gives them, or names a rule:

- ``divided_by_count``: 1/n for n points;
- ``product_of_others``: the product of the other points;
- ``equal_shares``: 1/n for each of n points that attain the extremum, 0 for the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from einturnip.eingraph.builder import LabelSpace
from einturnip.ir.aggregations import Aggregation, aggregation
from einturnip.ir.derivatives import recast
from einturnip.ir.dtypes import I64, DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.functions import compared, conjugate
from einturnip.ir.scalar import Scalar, ScalarConst
from einturnip.ir.simplify import constant, converted, divided, selected, times


class PointWeights:
    """Computes the weights of one aggregation, given its result and the adjoint ``g`` of it.

    ``join`` and ``keys`` are the einsum's, in the slots of ``space``; the first labels of the space are the einsum's.
    """

    def __init__(self, space: LabelSpace, einsum: Einsum, join: Scalar, keys: Sequence[tuple[int, Scalar]]) -> None:
        self.space, self.einsum, self.join, self.keys = space, einsum, join, list(keys)
        self.out, self.bound = tuple(range(einsum.n_out)), tuple(einsum.aggregated)
        self.is_pick = einsum.aggregation is not None and einsum.aggregation.combine == "pick"

    def at_points(self, g: int | ScalarConst, value: int) -> Scalar:
        """The adjoint of the join at each point, before the selection by keys."""
        operator = self.einsum.aggregation
        adjoint = self._at_points(g)
        if operator is None or self.is_pick:
            return adjoint
        match operator.row.derivative:
            case "divided_by_count":
                found = self._mean(g)
            case "equal_shares":
                found = self._extremum(operator, g, value)
            case "product_of_others":
                found = self._product(operator, g)
            case None:
                found = constant(0, operator.result)
            case derivative:
                join = converted(self.join, operator.result)
                found = times(adjoint, conjugate(derivative(join, self._at_points(value), self._count(operator))))
        return recast(found, operator.value)

    def _at_points(self, tensor: int | ScalarConst) -> Scalar:
        """A tensor of the result's shape at each point; if the result has keys, it is gathered by them."""
        if isinstance(tensor, ScalarConst):
            return tensor
        space, operand = self.space, self.space.operand(tensor, self.out)
        if not self.keys or self.is_pick:
            return operand
        keyed = [label for label, _ in self.keys]
        read = set(self.out).union(*(space.labels_in(value) for _, value in self.keys)) - set(keyed)
        order = tuple(sorted(read))
        node = space.emit(order, keyed, operand, aggregation("pick", operand.dtype), None, self.keys)
        return space.operand(node, order)

    def _folded(self, op: str, join: Scalar, dtype: DType | None = None) -> Scalar:
        """Aggregate the points that contribute to each element of the result."""
        operator = aggregation(op, join.dtype, dtype)
        node = self.space.emit(self.out, self.bound, join, operator, None, self.keys)
        return self.space.operand(node, self.out)

    def _stored(self, value: Scalar) -> int:
        """Add a node over the result's labels."""
        return self.space.emit(self.out, (), value, None, "share")

    def _over_result(self, tensor: int | ScalarConst) -> Scalar:
        return tensor if isinstance(tensor, ScalarConst) else self.space.operand(tensor, self.out)

    def _count(self, operator: Aggregation) -> Scalar:
        """The number of points of each result, at each of them; 1 if the derivative does not read it."""
        if not operator.row.derivative_reads_count:
            return constant(1, operator.result)
        if not self.keys:
            return constant(math.prod(self.space.bounds[p] for p in self.bound), operator.result)
        counted = converted(self._folded("sum", ScalarConst(1, I64)), operator.result)
        return self._at_points(self._stored(counted))

    def _mean(self, g: int | ScalarConst) -> Scalar:
        if not self.keys:
            count = math.prod(self.space.bounds[p] for p in self.bound)
            adjoint = self._at_points(g)
            return divided(adjoint, constant(count, adjoint.dtype))
        adjoint = self._over_result(g)
        counted = converted(self._folded("sum", ScalarConst(1, I64)), adjoint.dtype)
        return self._at_points(self._stored(divided(adjoint, counted)))

    def _extremum(self, operator: Aggregation, g: int | ScalarConst, value: int) -> Scalar:
        join = converted(self.join, operator.result)
        equal = compared("eq", join, self._at_points(value))
        ties = converted(self._folded("sum", equal), operator.result)
        share = self._at_points(self._stored(divided(self._over_result(g), ties)))
        return selected(equal, share, constant(0, join.dtype))

    def _product(self, operator: Aggregation, g: int | ScalarConst) -> Scalar:
        """The product of the other points.

        Without zeros it is total / point; if a single point is 0, it is the product of the rest there and 0 elsewhere.
        """
        join = converted(self.join, operator.result)
        zero, one = (constant(v, join.dtype) for v in (0, 1))
        is_zero = compared("eq", join, zero)
        others = self._folded("prod", selected(is_zero, one, join), operator.state[0])
        zeros = self._folded("sum", is_zero)
        whole = times(self._over_result(g), conjugate(converted(others, join.dtype)))
        at_zero = self._at_points(self._stored(selected(compared("eq", zeros, ScalarConst(1, I64)), whole, zero)))
        elsewhere = self._at_points(self._stored(selected(compared("eq", zeros, ScalarConst(0, I64)), whole, zero)))
        return selected(is_zero, at_zero, divided(elsewhere, conjugate(selected(is_zero, one, join))))
