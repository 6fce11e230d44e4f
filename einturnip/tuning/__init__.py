"""Numbers that tune the planner and the run: ``search`` of a plan, ``sites``, ``memory`` and its run.

A row is an assignment and what it means: ``[unit] Meaning. Basis.`` The basis is one of ``Measured``, ``Limit`` (bounds
time, memory or size), ``Follows`` (from other numbers), or ``Chosen`` (no measurement of it is recorded). Rates of a
machine are in cost.machine, those of kernels, files and the API beside their use. A test writes ``docs/tuning.md`` from
the rows, and finds such numbers in the packages that plan and run.
"""
