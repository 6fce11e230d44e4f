"""Programs on several sites, each with a memory of its own.

A site is a GPU, a simulated device, or a process on some machine.

In: a memory graph for several devices, whose ops wait across devices only where a move copies a value. Out: a plan for
each site (``split``), whose ops wait for ops of the same site only; a move is a SEND on one site and a NOTICE and a
RECEIVE on another. ``site_run`` runs one site over a wire; ``wires`` has the wires; ``local_run`` runs all sites in one
process. ``part`` takes one site out of the graph; ``process_run`` runs it in a process of its own.

The buffers of a transfer are extents of the two arenas, which the plan reserves: no run allocates or frees one. The
sender offers a value in place (``Wire.notify``), the receiver fetches it into its extent (``get_into``) and says so
(``acknowledge``), which ends the SEND. Ops that reuse the sender's extent wait for the SEND.

Reading order: ``types``, ``split``, ``wires.protocol``, ``site_run``, ``wires.local``, ``local_run``,
``part``, ``process_run``, ``wires.messages``, ``wires.mpi``, ``wires.dask``, ``wires.dask_chunks``,
``wires.dask_calls``, ``wires.dask_blocks``, ``wires.dask_listener``, ``wires.dask_cluster``; ``input_traffic``,
``output_chunks``.
"""
