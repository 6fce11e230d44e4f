"""The scheduler: state machine, dispatch policies, lanes, traces, reports.

It has no clock, starts no threads and does no I/O.

Read in this order: ``state_machine``, ``policies``, ``trace``, ``report``, ``replay``.
"""
