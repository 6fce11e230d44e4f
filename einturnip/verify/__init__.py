"""Verifies memory graphs independently: reads their JSON and shares no code with the planner.

In: the output of ``einturnip plan --emit memgraph``. Out: a ``types.Verdict`` with every violation of a ``types.Rule``.
Read in this order: ``types``, ``check`` (all rules), ``read`` with ``stream`` and ``columns`` (parsing), ``names``
(rules without an order), ``order`` and ``sweep`` (one order of the ops), ``reach`` (all orders), ``outputs`` with
``boxes``.
"""
