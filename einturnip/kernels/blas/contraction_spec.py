"""The description of a contraction by BLAS, from which its kernel is built and its time is estimated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from einturnip.core.units import whole_lines
from einturnip.ir.dtypes import BF16, DType, promote
from einturnip.ir.einsum import Access, ContractionRoles, Einsum, contraction, labels_read
from einturnip.ir.scalar import ScalarCast, walk
from einturnip.kernels.blas.cblas import needs_scratch
from einturnip.kernels.blas.matrices import ContractionTensor, MatrixPlan, by_columns, general_ns, plan, stride
from einturnip.kernels.expr.graph import number
from einturnip.kernels.expr.window import label_strides, terms

WORKSPACE_NBYTES = 8 << 20
# Maximum terms of an inner product by BLAS. Longer ones are summed in blocks, as other long sums are: their rounding
# errors grow with the logarithm of the length, BLAS's with the length.
MAX_TERMS = 8192
_SPARE_NBYTES = 32 << 10  # minimum workspace, for tiles that are not contiguous and need panels
ROLES = ((0, 2), (2, 1), (0, 1))  # rows and columns of left, right and out among the groups m, n, k

StrideKey = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class BoundPlan:
    """A plan for tiles of certain strides; ``steps``: (row, column) strides of the three matrices."""

    plan: MatrixPlan
    steps: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    flipped: tuple[bool, bool, bool]  # panels stored by columns, as the tile is
    single: tuple[int, int, int] | None  # m, n, k if one product computes the whole tile


@dataclass(frozen=True)
class ContractionSpec:
    """Describes the BLAS kernel of a contraction of tiles of fixed extents and any strides.

    Prices need no more than this: which matrices are multiplied, in which blocks, and which are copied.

    Shapes:
        accesses, labels: of left, right and out: the accesses of their axes, and the labels of their views.
        extents: by label; ``long`` are those of more than one point.
    """

    accesses: tuple[Access, Access, Access]
    labels: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    slots: tuple[int, int]
    itemsizes: tuple[int, int, int]
    converts: tuple[bool, bool, bool]
    groups: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    batch: tuple[int, ...]
    extents: tuple[int, ...]
    long: Mapping[int, int]
    dtype: DType
    alpha: complex
    scratch: bool  # whether adding a product to the result needs scratch
    whole: bool
    flops: int
    narrow_bf16: bool
    workspace_nbytes: int = 0
    expensive: bool = False  # the general kernels are faster, because of many products or large copies
    plans: dict[StrideKey, BoundPlan] = field(default_factory=dict, compare=False)  # by strides; first: contiguous

    @property
    def sides(self) -> tuple[int, int, int]:
        """Rows, columns and terms."""
        m, n, k = (math.prod(self.long[p] for p in group) for group in self.groups)
        return m, n, k

    @property
    def is_vector(self) -> bool:
        """Whether one side of the matrices has size 1, so that each element of the other is used once."""
        return min(self.sides[:2]) == 1

    @property
    def rounds(self) -> bool:
        """Whether it is a matrix-vector or inner product too long for BLAS's running sum."""
        return self.is_vector and self.sides[2] > MAX_TERMS

    @property
    def contiguous_plan(self) -> MatrixPlan:
        """The plan for contiguous tiles."""
        return next(iter(self.plans.values())).plan

    def bind(self, strides: StrideKey) -> BoundPlan:
        """Return the cached plan for tiles of these strides (bytes by axis)."""
        found = self.plans.get(strides)
        if found is None:
            found = self.plans[strides] = self.plan(strides, self.workspace_nbytes)
        return found

    def plan(self, strides: StrideKey, limit_nbytes: int) -> BoundPlan:
        """Return the plan for tiles of these strides within a workspace."""
        tensors = tuple(self._tensor(i, s) for i, s in enumerate(strides))
        made = plan(
            self.groups,
            self.batch,
            self.long,
            (tensors[0], tensors[1], tensors[2]),
            self.dtype.itemsize,
            self.scratch,
            limit_nbytes,
        )
        steps = [[stride(made.groups[g], t.strides) for g in (t.rows, t.columns)] for t in tensors]
        flipped = [by_columns(t, made, self.long) for t in tensors]
        m, n, k = (math.prod(self.long[p] for p in group) for group in made.groups)
        alone = not made.loops and not any(made.packed) and not self.scratch
        return BoundPlan(
            made,
            ((steps[0][0], steps[0][1]), (steps[1][0], steps[1][1]), (steps[2][0], steps[2][1])),
            (flipped[0], flipped[1], flipped[2]),
            (m, n, k) if alone else None,
        )

    def _tensor(self, index: int, strides: tuple[int, ...]) -> ContractionTensor:
        size = self.itemsizes[index]
        elements = {p: s // size for p, s in zip(self.labels[index], strides, strict=True) if p in self.long}
        odd = any(s % size for s in strides)
        return ContractionTensor(*ROLES[index], elements, self.converts[index] or odd)


def contraction_spec(einsum: Einsum, extents: tuple[int, ...], whole: bool) -> ContractionSpec | None:
    """Return the spec of a contraction's kernel; None if BLAS cannot compute it."""
    found = contraction(einsum)
    if found is None or not _by_blas(einsum, found) or 0 in extents:
        return None
    dtype, aggregation = found.accumulator, einsum.aggregation
    assert aggregation is not None
    alpha = 1.0 if found.alpha is None else number(found.alpha.value, found.product).item()
    result = aggregation.result if whole else dtype
    types = einsum.dtypes[found.left], einsum.dtypes[found.right], result
    out = tuple(range(einsum.n_out))
    accesses: tuple[Access, Access, Access] = (einsum.accesses[found.left], einsum.accesses[found.right], out)
    long = {p: n for p, n in enumerate(extents) if n > 1}
    spec = ContractionSpec(
        accesses=accesses,
        labels=(_labels(accesses[0]), _labels(accesses[1]), out),
        slots=(found.left, found.right),
        itemsizes=(types[0].itemsize, types[1].itemsize, types[2].itemsize),
        converts=(types[0] != dtype, types[1] != dtype, types[2] != dtype),
        groups=(_kept(found.m, long), _kept(found.n, long), _kept(found.k, long)),
        batch=_kept(found.batch, long),
        extents=extents,
        long=long,
        dtype=dtype,
        alpha=alpha,
        scratch=needs_scratch(dtype.numpy),
        whole=whole,
        flops=2 * math.prod(extents),
        narrow_bf16=result == BF16,
    )
    return _sized(spec, types)


def _kept(labels: tuple[int, ...], long: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(p for p in labels if p in long)


def _by_blas(einsum: Einsum, found: ContractionRoles) -> bool:
    """Return True if BLAS computes exactly the program: floats, and conversions without loss."""
    if not found.accumulator.is_inexact or not found.product.is_inexact:
        return False
    if promote(found.product, found.accumulator) != found.accumulator:
        return False
    return all(promote(e.argument.dtype, e.dtype) == e.dtype for e in walk(einsum.join) if isinstance(e, ScalarCast))


def _labels(access: Access) -> tuple[int, ...]:
    """Return the labels of an operand's view: the access itself if its axes are distinct labels."""
    plain = tuple(p for p in access if isinstance(p, int))
    return plain if plain == access and len(set(plain)) == len(plain) else tuple(sorted(labels_read(access)))


def _sized(spec: ContractionSpec, types: tuple[DType, DType, DType]) -> ContractionSpec:
    """Return the spec with its workspace sized for contiguous tiles, and some spare for others."""
    strides, nbytes = [], 0
    for access, labels, dtype in zip(spec.accesses, spec.labels, types, strict=True):
        shape = [1 + sum(abs(c) * (spec.extents[p] - 1) for p, c in terms(axis)) for axis in access]
        steps = itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=dtype.itemsize) if shape else ()
        by_label = label_strides(access, tuple(reversed(tuple(steps))))
        strides.append(tuple(by_label[p] for p in labels))
        nbytes += whole_lines(math.prod(shape) * spec.dtype.itemsize)
    key = strides[0], strides[1], strides[2]
    bound = spec.plan(key, WORKSPACE_NBYTES)
    needed = max(bound.plan.workspace_nbytes, min(2 * nbytes + 256, _SPARE_NBYTES))
    expensive = bound.plan.cost_ns > general_ns(math.prod(spec.extents), spec.dtype.itemsize)
    # Within the workspace needed, contiguous tiles have the same plan.
    return replace(spec, workspace_nbytes=needed, expensive=expensive, plans={key: bound})
