"""MemGraph to RunReport: runs a plan in any order that its dependencies allow.

``scheduler`` is the state machine and its policies, without clock, threads or I/O. Three drivers use it: ``host``
(threads and prepared plans), ``stream`` (devices with streams), ``simulate`` (a virtual clock).
"""
