"""Tile kernels as machine code: LLVM IR, compiled in a child process, cached on disk.

Read in this order:

- specifications, the keys of the code cache: ``kernel_spec`` (loop nests), ``packed_spec`` and ``pack_plan`` (packed
  products), ``row_spec`` (fused rows), with ``loop_order``, ``block_sizes`` and ``short_vectors``;
- loop nests as IR: ``nest`` and its parts ``loops``, ``values``, ``memory``, ``guarded_loads``, ``folds``,
  ``extremum``, ``blocked_sums``; ``row_nest``; ``pack_loops`` with ``pack_routines``, ``transposed_packing`` and
  ``register_tile``; ``scatter`` and ``partial_sums``; ``take_rows``;
- the builders below them: ``ir``, ``routine``, ``primitives``, ``functions`` (exp, log, …);
- compilation: ``compiler`` runs LLVM for this processor, ``code_cache`` stores object code, ``elf`` loads it;
- calls: ``kernel`` and ``contraction``; ``command_list`` runs many calls in one, ``parallel_for`` divides one among
  threads. ``peak`` measures the peak rate of a core.
"""
