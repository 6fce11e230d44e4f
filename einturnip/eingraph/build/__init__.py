"""Program to EinGraph: binds sizes, unrolls loops, and splits each statement at its aggregations.

``program`` is the entry; ``sizes`` binds dims, ``ranges`` proves indices in bounds, ``statement`` builds one equation.
``stages`` builds a program with long loops as several graphs; ``loop_body`` makes the body of a loop the same in each
iteration.
"""
