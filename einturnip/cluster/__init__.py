"""Runs on the workers of a cluster, each with a memory of its own.

In: a bound program and a Dask client. Out: a run report, with outputs committed by this process. ``planning`` plans for
the workers' memory and makes a part for each site; ``site_task`` runs one part in a worker; ``coordinator`` begins the
run, watches it, and holds the arrays that are in no file. ``sites.wires`` imports Dask; other modules call methods of
its clients and workers.

Reading order: ``workers``, ``tensors``, ``planning``, ``site_task``, ``coordinator``, ``dask``.
"""
