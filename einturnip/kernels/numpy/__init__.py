"""Kernels that run NumPy operations block by block: maps, reductions, gathers and scatters.

They run where no machine code is available or worth compiling. Read in this order: ``blocked`` (blocks, registers and
partial states), ``join`` (the graph of a block, with ``indexed_load`` and ``index_check``), ``elementwise``,
``reduce``, ``empty``; then the einsums whose indices are data: ``keyed`` chooses the kernel, ``gather_row`` gathers,
``scatter`` folds by key, with ``scatter_sums`` and ``sorted_sums`` for sums of floats.
"""
