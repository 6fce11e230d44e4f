"""Kernels of fused regions: a tile is computed in blocks whose intermediate values stay in the cache.

``build`` compiles a region into a ``program`` for one block. ``region_spec`` has the blocks, programs and workspace of
a tile, by which the tile is also priced; ``region_kernel`` runs them for every block that ``block_iterator`` yields.
``recorder`` and ``replay`` turn repeated blocks into command lists of machine code; ``row_kernel`` computes whole rows
with one function.
"""
