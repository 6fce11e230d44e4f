"""Chooses and caches the host kernel of an einsum or a region for one tile shape.

Machine code, BLAS or NumPy: code that has been prepared comes first, BLAS computes the remaining contractions, and
NumPy everything else. The functions for the planner say which code to compile and how much workspace to reserve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from einturnip.core.program_limits import checkpoint
from einturnip.ir.einsum import Einsum, IdentityCache, contraction
from einturnip.ir.region import Region
from einturnip.kernels.blas.contraction import contraction_kernel
from einturnip.kernels.blas.contraction_spec import ContractionSpec, contraction_spec
from einturnip.kernels.contraction_choice import contraction_code, uses_blas
from einturnip.kernels.llvm import code_cache
from einturnip.kernels.llvm.code_cache import Code
from einturnip.kernels.llvm.contraction import PackedContraction
from einturnip.kernels.llvm.kernel import MachineCodeKernel
from einturnip.kernels.llvm.kernel_spec import KernelSpec, kernel_spec
from einturnip.kernels.llvm.pack_plan import packed_roles
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.kernels.numpy.blocked import BlockedKernel
from einturnip.kernels.numpy.elementwise import compile_elementwise, compile_finalize
from einturnip.kernels.numpy.empty import NOTHING, compile_empty
from einturnip.kernels.numpy.reduce import compile_combine, compile_reduce
from einturnip.kernels.protocol import HostKernel, Mode

if TYPE_CHECKING:
    from einturnip.kernels.fused.combine import RegionCombiner
    from einturnip.kernels.fused.region_spec import RegionSpec
    from einturnip.kernels.fused.row_function import RowFunctionCall

# Workspace of NumPy kernels that are only the fallback of machine code: a share of the tile, within these limits.
_MIN_LEAN, _MAX_LEAN, _LEAN_SHARE = 64 << 10, 256 << 10, 16


def compile_kernel(einsum: Einsum | Region, extents: tuple[int, ...], mode: Mode, by_blas: bool = False) -> HostKernel:
    """Return the cached kernel of an einsum or a region over a tile of ``extents`` (by label).

    ``by_blas``: products by BLAS or NumPy, even if there is machine code.

    Kernels are cached by value; label names are part of it only if an error can name them.
    """

    def compiled() -> HostKernel:
        unnamed = einsum if einsum.keys else replace(einsum, labels=("",) * len(einsum.labels))
        return _cached_kernel(unnamed, extents, mode, True, by_blas)

    return _by_identity.get(einsum, (extents, mode, by_blas), compiled)


def compile_tile(
    einsum: Einsum | Region, extents: tuple[int, ...], mode: Mode, native: bool = True, by_blas: bool = False
) -> HostKernel:
    """Compile the kernel without the cache; ``native``: as machine code if that was prepared."""
    if isinstance(einsum, Region):
        return _region_kernel(einsum, extents, mode)
    if mode == "combine":
        return compile_combine(einsum, extents)
    fast = _as_machine_code if native else _as_numpy
    if mode == "finalize":
        return (
            fast(compile_finalize(einsum, extents), einsum, extents, mode)
            if math.prod(extents[: einsum.n_out])
            else NOTHING
        )
    if einsum.keys:
        from einturnip.kernels.numpy.keyed import compile_keyed

        return compile_keyed(einsum, extents, mode)
    if 0 in extents[: einsum.n_out]:
        return NOTHING
    if einsum.aggregation is None:
        return fast(compile_elementwise(einsum, extents), einsum, extents, mode)
    if 0 in extents:
        return compile_empty(einsum, extents, mode)
    product = _product(einsum, extents, mode == "full")
    if product is not None and not product.rounds:
        made = _multiplied(product, einsum, mode) if native and not by_blas else None
        if made is not None or uses_blas(product):
            return made or contraction_kernel(product)
    return fast(compile_reduce(einsum, extents, mode == "full"), einsum, extents, mode)


def _region_kernel(region: Region, extents: tuple[int, ...], mode: Mode) -> HostKernel:
    """Compile a region's kernel, as machine code if all of it is loaded."""
    if mode == "combine":
        return region_combiner(region, extents)
    from einturnip.kernels.fused.region_kernel import RegionKernel
    from einturnip.kernels.fused.region_spec import region_spec
    from einturnip.kernels.fused.row_kernel import RowsKernel

    codes = machine_code(region, mode) if code_cache.ready() else ()
    native = bool(codes) and all(code_cache.find(code) is not None for code in codes)
    run = row_function(region, extents) if region.of_rows and native else None
    kernel = RegionKernel(region_spec(region, extents, mode, _compile_step, native and not region.of_rows))
    return kernel if run is None or run.function is None else RowsKernel(run, kernel)


def region_combiner(region: Region, extents: tuple[int, ...]) -> RegionCombiner:
    """Return the kernel that adds a state of a region to another."""
    from einturnip.kernels.fused.combine import RegionCombiner

    return RegionCombiner(region, extents, _compile_step)


@lru_cache(maxsize=128)
def priced_region(region: Region, extents: tuple[int, ...], mode: Mode, native: bool) -> RegionSpec:
    """Return how a region is computed in blocks, to price it; ``native``: by machine code."""
    from einturnip.kernels.fused.region_spec import region_spec

    return region_spec(region, extents, mode, _compile_step, native)


def row_function(region: Region, extents: tuple[int, ...]) -> RowFunctionCall | None:
    """Return the call that computes a row region by machine code; None if there is none."""
    from einturnip.kernels.fused.row_kernel import row_function

    return row_function(region, extents, _compile_step)


def _compile_step(einsum: Einsum | Region, extents: tuple[int, ...], mode: Mode) -> HostKernel:
    """Compile a step of a region for NumPy, so that the result's bits depend on the region alone."""
    checkpoint()
    unnamed = einsum if einsum.keys else replace(einsum, labels=("",) * len(einsum.labels))
    return _cached_kernel(unnamed, extents, mode, False, True)


def _as_numpy(fallback: HostKernel, einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> HostKernel:
    """Return the NumPy kernel."""
    return fallback


def _as_machine_code(fallback: HostKernel, einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> HostKernel:
    """Return the kernel as machine code if that was prepared, else the NumPy kernel."""
    if not code_cache.ready():
        return fallback
    made = kernel_spec(einsum, mode)
    function = code_cache.find(made.packing or made) if made is not None else None
    if made is None or function is None:
        return fallback
    if made.packing is None:
        return MachineCodeKernel(made, extents, function, fallback)
    roles = packed_roles(einsum, extents, mode == "full")
    return PackedContraction(roles, made.packing, function, fallback, made.compares)


def _slower_kernel(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> HostKernel:
    """Return the kernel; for a product the one without machine code, which may take more workspace."""
    is_product = product_spec(einsum, extents, mode) is not None
    return compile_kernel(einsum, extents, mode, by_blas=is_product)


def planned_workspace_nbytes(einsum: Einsum | Region, extents: tuple[int, ...], mode: Mode, compiled: bool) -> int:
    """Return the bytes of workspace that a plan reserves for a kernel.

    ``compiled``: it may be machine code, which takes none; the NumPy kernel as its fallback then gets little.
    """
    nbytes = workspace_nbytes(einsum, extents, mode)
    tile = sum(math.prod(einsum.operand_extents(s, extents)) * d.itemsize for s, d in enumerate(einsum.dtypes))
    lean = max(_MIN_LEAN, min(_MAX_LEAN, tile // _LEAN_SHARE))
    if not compiled or nbytes <= lean:
        return nbytes
    if isinstance(einsum, Region):
        if mode == "combine" or not einsum.of_rows or row_function(einsum, extents) is None:
            return nbytes
        return priced_region(einsum, extents, mode, False).within(lean).workspace_nbytes
    if blas_spec(einsum, extents, mode) is not None or kernel_spec(einsum, mode) is None:
        return nbytes
    kernel = _slower_kernel(einsum, extents, mode)
    fallback = kernel.fallback if isinstance(kernel, MachineCodeKernel) else kernel
    return fallback.within(lean).workspace_nbytes if isinstance(fallback, BlockedKernel) else nbytes


def product_spec(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> ContractionSpec | None:
    """Return the spec of a tile's BLAS kernel, fast or not; None if BLAS cannot compute it."""
    if mode in ("finalize", "combine"):
        return None

    def made() -> ContractionSpec | None:
        if contraction(einsum) is None:
            return None
        return _product(replace(einsum, labels=("",) * len(einsum.labels)), extents, mode == "full")

    return _specs_by_identity.get(einsum, (extents, mode == "full"), made)


def blas_spec(einsum: Einsum | Region, extents: tuple[int, ...], mode: Mode) -> ContractionSpec | None:
    """Return the spec of the BLAS kernel that computes a tile without machine code; None if NumPy does."""
    spec = product_spec(einsum, extents, mode) if isinstance(einsum, Einsum) and not einsum.keys else None
    return spec if spec is not None and uses_blas(spec) else None


def workspace_nbytes(einsum: Einsum | Region, extents: tuple[int, ...], mode: Mode) -> int:
    """Return the workspace of a tile's kernel; for a product without machine code, which may take more."""
    if isinstance(einsum, Region):
        if mode == "combine":
            return region_combiner(einsum, extents).workspace_nbytes
        return priced_region(einsum, extents, mode, False).workspace_nbytes
    spec = blas_spec(einsum, extents, mode)
    return _slower_kernel(einsum, extents, mode).workspace_nbytes if spec is None else spec.workspace_nbytes


def product_code(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> KernelSpec | PackedSpec | None:
    """Return the code to compile for a contraction over a tile; None if BLAS or NumPy computes it."""
    product = product_spec(einsum, extents, mode)
    return None if product is None else contraction_code(product, einsum, mode)


def _multiplied(product: ContractionSpec, einsum: Einsum, mode: Mode) -> HostKernel | None:
    """Return a contraction as machine code; None if none was prepared."""
    code = contraction_code(product, einsum, mode) if code_cache.ready() else None
    function = code_cache.find(code) if code is not None else None
    if function is None or code is None:
        return None
    kernel = contraction_kernel(product)
    if isinstance(code, PackedSpec):
        return PackedContraction.of_product(kernel, code, function)
    # The fallback is the kernel for which a plan reserves workspace.
    fallback = kernel if uses_blas(product) else compile_reduce(einsum, product.extents, mode == "full")
    return MachineCodeKernel(code, product.extents, function, fallback)


def row_code(einsum: Einsum, extents: tuple[int, ...], mode: Mode) -> tuple[Code, ...]:
    """Return the code to compile for gathering or scattering rows of tables."""
    if not einsum.keys or 0 in extents or mode == "finalize" or mode == "combine":
        return ()
    from einturnip.kernels.numpy.indexed_load import TAKER, RowLoad
    from einturnip.kernels.numpy.keyed import FinalizedKernel
    from einturnip.kernels.numpy.scatter import Scatter

    kernel = compile_kernel(einsum, extents, mode)
    fold = kernel.fold if isinstance(kernel, FinalizedKernel) else kernel
    sections = fold.steps.sections if isinstance(fold, BlockedKernel) else ()
    found: dict[Code, None] = {}
    for operation in (step.operation for section in sections for step in section):
        if isinstance(operation, RowLoad):
            found[TAKER] = None
        elif isinstance(operation, Scatter):
            found |= dict.fromkeys(operation.codes)
    return tuple(found)


def machine_code(space: Einsum | Region, mode: Mode) -> tuple[Code, ...]:
    """Return the code to compile for an einsum or a region; empty if NumPy computes it."""
    if mode == "combine":
        return ()
    if isinstance(space, Region):
        from einturnip.kernels.fused.region_spec import region_code

        if not space.of_rows:
            return region_code(space, mode, _compile_step)
        run = row_function(space, space.bounds)
        return () if run is None else (run.row_spec,)
    made = kernel_spec(space, mode)
    return () if made is None else (made.packing or made,)


def prepare_kernels(kernels: Iterable[tuple[Einsum | Region, Mode]]) -> int:
    """Compile and load these kernels as machine code; return how many functions there are."""
    return prepare_code([code for space, mode in kernels for code in machine_code(space, mode)])


def prepare_code(codes: Sequence[Code]) -> int:
    """Compile and load this machine code; return how many of the functions there are."""
    if code_cache.prepare(codes):
        forget()
    return sum(code_cache.find(code) is not None for code in dict.fromkeys(codes))


def load_code(codes: Sequence[Code]) -> None:
    """Load as much of this machine code as has been compiled before."""
    if code_cache.load_compiled(codes):
        forget()


def forget() -> None:
    """Empty the caches of kernels.

    A thread that is compiling a kernel meanwhile, perhaps without machine code that has just been loaded, stores it in
    a table that is no longer in use. ``_cached_kernel`` is replaced first, so whoever reads the new ``_by_identity``
    also reads the new ``_cached_kernel``.
    """
    global _cached_kernel, _by_identity
    _cached_kernel = lru_cache(maxsize=_CACHED_KERNELS)(compile_tile)
    _by_identity = IdentityCache[HostKernel](_CACHED_KERNELS)


_CACHED_KERNELS = 256  # at 2 to 20 KiB each
_cached_kernel = lru_cache(maxsize=_CACHED_KERNELS)(compile_tile)
_product = lru_cache(maxsize=_CACHED_KERNELS)(contraction_spec)
_specs_by_identity = IdentityCache[ContractionSpec | None](_CACHED_KERNELS)
_by_identity = IdentityCache[HostKernel](_CACHED_KERNELS)
