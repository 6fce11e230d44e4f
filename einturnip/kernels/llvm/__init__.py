"""Tile kernels as machine code: LLVM IR, compiled in a child process, cached on disk.

``kernel_spec`` decides what is compiled; ``nest``, ``pack_loops``, ``row_nest``, ``scatter`` write its
loops with ``ir``, ``memory``, ``folds`` and ``functions``; ``compiler`` runs LLVM, ``code_cache`` stores object code,
``elf`` loads it. ``kernel`` and ``contraction`` call it; ``command_list`` makes many calls in one, ``parallel_for``
splits calls over threads.
"""
