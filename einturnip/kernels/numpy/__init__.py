"""Kernels that run NumPy operations block by block: maps, reductions, gathers and scatters.

They run where no machine code is available or worth compiling. ``join`` builds the graph of a block, ``blocked``
iterates over blocks.
"""
