"""Syntax tree to Program: names to tensors, labels to numbers, a dtype for every expression.

``resolve`` is the entry; ``scope`` holds the names in force, ``equations`` elaborates one equation, ``indices`` the
accesses in it, ``functions`` and ``loops`` what expands, ``typing`` the dtypes.
"""
