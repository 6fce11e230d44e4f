"""Runs a MemGraph in any order that its dependencies allow, and returns a RunReport.

``scheduler`` is the state machine and its policies, without clock, threads or I/O. Three drivers use it: ``host``
(worker threads, and prepared plans for repeated runs), ``stream`` (devices with streams), ``simulate`` (a virtual
clock). Read ``scheduler/state_machine.py`` first, then ``host/event_loop.py`` and ``host/thread_pool.py``.
"""
