"""Searches for the plan of a program: proposes variants and tilings, prices them, lowers the best few.

In: an ``EinGraph``, a machine and a budget. Out: a ``MemGraph`` with its predicted time (``plan.LoweredPlan``). Read in
this order: ``variants`` chooses fused or unfused graphs; ``plan`` searches one graph; ``candidates`` proposes tilings
by formula; ``compare`` lowers and simulates the best of them; ``lower`` and ``budget`` account for the memory;
``predict`` and ``ranking`` predict time and cost. ``io_lower_bound`` is independent of the search; ``plan_store``
caches plans on disk.
"""
