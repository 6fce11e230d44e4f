"""TaskGraph to MemGraph: gives every value an address and makes every transfer an op.

Source: TURNIP, arXiv 2405.16283.

In: a TaskGraph, a capacity in bytes, a machine. Out: a MemGraph whose dependencies make every order that they allow
correct. Read `types`, then `arena` and `eviction`, then `build`; `check` proves the result, and
`tests/reference` defines its meaning.
"""
