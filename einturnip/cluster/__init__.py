"""Runs at several sites, each a process with a memory of its own.

In: a bound program and a cluster. Out: a run report, with outputs committed by the coordinator, the process that
begins the run. ``planning`` plans for the sites' memory and makes a part for each, in another process if the plan is
large (``planning_process``); ``site_task`` runs one part; ``coordinator`` plans, repeats a run that lost a worker, and
commits; ``cluster_run`` is one attempt, and serves arrays of the coordinator. ``transport`` has the protocols of the
engine that connects the processes, and the order of its messages; ``dask`` and ``mpi`` implement them. The packages of
both engines are imported under ``sites.wires`` only.

Reading order: ``workers``, ``tensors``, ``chunks``, ``planning``, ``planning_process``, ``transport``, ``site_task``,
``cluster_run``, ``site_reports``, ``coordinator``, ``mpi_rank``, ``mpi_states``, ``mpi``, ``dask``, ``dask_arrays``,
``at``.
"""
