"""Runs on host threads: the op executor, the thread-pool driver, and prepared plans for repeated runs.

``executor`` does one op; ``thread_pool`` drives a run on the threads of ``run_resources``; ``event_loop`` is the entry
point. ``run_resources`` holds what runs of one plan share. ``prepared_ops`` and ``prepared_run`` resolve a
plan's kernels and addresses once, which makes repeated runs cheap.
"""
