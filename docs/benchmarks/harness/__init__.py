"""Benchmarks of einturnip and its alternatives, interleaved in one run.

In: cases (``cases``, ``disk_cases``, ``gpu_cases``) and peers (``peers``, ``disk_peers``, ``gpu_peers``). Out: results
as JSON, pages (``*_page``) and a drawing (``draw``). ``commands`` has the commands under ``einturnip bench``; read
``host``, then ``contest``, which runs each contender in a process of its own (``worker``, ``disk_worker``); then
``disk``, ``gpu`` and ``loop``. Only a checkout has this package, and ``docs/benchmarks`` has to be on the path.
"""
