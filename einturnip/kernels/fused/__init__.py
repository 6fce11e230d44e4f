"""Kernels of fused regions: a tile is computed in blocks whose intermediate values stay in the cache.

``build`` compiles a region into a ``program`` for one block; ``region_kernel`` runs it for every block that
``block_iterator`` yields; ``recorder`` and ``replay`` turn repeated blocks into command lists of machine code;
``row_kernel`` computes whole rows with one function.
"""
