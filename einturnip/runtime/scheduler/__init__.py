"""The scheduler as a state machine, dispatch policies, lanes, traces and reports.

No clock, no thread, no I/O.
"""
