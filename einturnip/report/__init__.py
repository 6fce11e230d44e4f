"""Formats plans and runs for people and programs.

In: planned programs, run reports, recorded runs. Out: styled lines, plain text, JSON, Graphviz graphs, traces. Read
``tensor_work`` (seconds and bytes of each tensor) and ``statements`` (a plan by source lines), then ``explain``
with ``notes`` (``einturnip plan``), ``analyze`` (``run --analyze``), ``summary`` (after a run), ``emit`` and
``dot`` (the IRs), ``relations`` with ``relation_sql`` (tensors as tables of tiles), ``overview``, ``budgets``,
``parts``, ``trace`` and ``recording``. ``signature`` and ``symbolic_shapes`` serve ``check`` and the language
server. Nothing here plans or runs, except that ``budgets`` plans through a function that it receives.
"""
