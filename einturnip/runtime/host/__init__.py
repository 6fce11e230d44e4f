"""Runs on host threads: the op executor, the thread-pool driver, prepared plans for repeated runs.

``executor`` does one op; ``thread_pool`` drives a run; ``prepared_ops``, ``inline_plan`` and ``threaded_plan`` make
repeated runs cheap; ``worker_pool`` owns the threads, ``run_resources`` what runs of one plan share.
"""
