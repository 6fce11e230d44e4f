"""Program to EinGraph: binds sizes, unrolls loops, and splits each statement at its aggregations.

``program`` is the entry; ``sizes`` binds dims, ``ranges`` proves indices in bounds, ``statement`` builds one equation.
"""
