"""Decomposition to TaskGraph.

One task per tile kernel, load, store and move, in a serial order that reuses data. In: a Decomposition and a machine.
Out: a TaskGraph. Read `types`, then `order` and `build`; `check` proves the result, and `tests/reference` defines its
meaning. `multi_device` and `multi_program` transform task graphs.
"""
