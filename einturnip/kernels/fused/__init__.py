"""Kernels of fused regions: a tile is computed in blocks whose intermediate values stay in the cache.

Read in this order:

- ``block_layout`` chooses the blocks of a tile and lays out the workspace; ``block_iterator`` iterates over the blocks
  that a mask does not leave idle; ``partial_states`` is the order in which they are folded into the tile's state;
- ``program`` defines the actions of one block; ``build`` compiles a region into such a program, with ``step_einsum``,
  ``operation_chain``, ``matrix_fold`` and ``row_function``; ``value_layout`` orders the axes of values for NumPy;
- ``region_spec`` is the blocks, programs and workspace of a tile. The cost model counts the work of the same
  specification;
- ``region_kernel`` runs it, ``combine`` combines two states. ``recorder`` records the calls of a block as a command
  list, and ``replay`` replays it for all blocks of the same shape; ``row_kernel`` computes whole rows with one
  function.
"""
