"""Elaboration, syntax tree to TypedProgram: resolves names and labels, and assigns dtypes.

``resolve`` is the entry; ``scope`` holds the visible names; ``equations`` elaborates one equation and ``indices`` its
accesses; ``functions`` and ``loops`` expand calls and loops; ``typing`` computes dtypes.
"""
