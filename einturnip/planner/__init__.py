"""Searches for the plan of a program: proposes variants and tilings, prices them, lowers the best few.

In: a ``PlanRequest`` (an ``EinGraph``, its files, options, a machine and a budget). Out: a ``PlannedProgram``. Read in
this order: ``planner`` lists the passes; ``variants`` chooses fused or unfused graphs, searches each, and measures the
memory of the result; ``candidates`` proposes tilings by formula; ``compare`` lowers and simulates the best of them;
``lower`` and ``budget`` account for the memory; ``predict`` predicts time and cost. ``io_lower_bound``
is independent of the search; ``plan_store`` caches plans on disk.
"""
