"""Time and bytes by formula: the machine model, and the work of kernels and transfers on it.

``machine`` holds the measured rates of one computer (``machine_defaults`` where nothing was measured);
``described_machines`` reads machines from ``machines/*.toml`` for simulation. ``kernel_work`` and ``region_work``
count the passes, products and calls of a compiled kernel, ``machine_code_work`` those of machine code; ``kernel_time``
turns counts into seconds. ``transfer_time`` does the same for files and memory. ``working_set`` gives the bytes that a
tile needs.
"""
