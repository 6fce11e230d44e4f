"""The Python API, exported by ``einturnip``: compile, Program, Plan, einsum, contract, open.

In: program texts or files, arrays, sizes and options as a caller writes them. Out: ``Result``, ``Plan``, ``Session``.
Read ``program`` (programs and plans), ``call_settings``, ``inputs`` and ``jobs`` (a planned program with inputs and
output targets, which the command line uses too), then ``run_program`` and ``results``. ``plan_cache``, ``call_cache``
and ``prepared_plan`` make repeated calls fast, and ``call_planning`` plans a call; ``session``, ``session_states``,
``step_plan`` and ``checkpoints`` run programs with states, ``staged_job`` and ``loop_run`` those with long loops;
``held_values`` is their storage. ``einsum`` and ``subscripts`` have NumPy's signature; ``active_runs`` and ``use_lock``
order threads.
"""
