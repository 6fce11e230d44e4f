"""Building blocks of every IR: dtypes, scalar expressions, aggregations, einsums and regions.

Read in this order: ``dtypes``, ``scalar`` (expressions), ``functions`` (their table), ``aggregations`` (monoids with a
state), ``einsum``, ``region`` (fused einsums). ``tests/reference`` defines their values in plain NumPy;
every kernel and every IR is tested against it. ``laws`` and ``predicates`` hold the algebra that fusion and masks rely
on, ``derivatives`` and ``simplify`` what gradients need.
"""
