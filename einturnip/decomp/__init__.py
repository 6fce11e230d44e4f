"""EinGraph to Decomposition: how each einsum is cut into tiles."""
