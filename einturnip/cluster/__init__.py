"""Runs at several sites, each a process with a memory of its own.

In: a bound program and a cluster. Out: a run report, with outputs committed by this process. ``planning`` plans for
the sites' memory and makes a part for each; ``site_task`` runs one part; ``coordinator`` begins the run, watches it,
and holds the arrays that are in no file. ``transport`` has the protocols of the engine that connects the processes;
``dask`` and ``mpi`` implement them. Both engines are imported under ``sites.wires`` only; other modules call methods of
its objects.

Reading order: ``workers``, ``tensors``, ``chunks``, ``planning``, ``transport``, ``site_task``, ``coordinator``,
``mpi_rank``, ``mpi``, ``dask``, ``dask_arrays``, ``at``.
"""
