"""Tile kernels: compile an einsum or a region, over a tile's extents, to code that computes it.

In: ``ir.Einsum`` or ``ir.Region``, the extents of a tile, a mode. Out: a ``protocol.HostKernel`` or CUDA source.
``select`` chooses among the variants. Subpackages, from the bottom: ``expr`` (scalar expressions as primitive
operations), ``llvm`` (machine code), ``blas`` (matrix products), ``numpy`` (array operations), ``fused`` (regions),
``cuda`` (CUDA C++). ``mask`` decides which blocks add nothing, ``fp_status`` reports invalid operations.
"""
