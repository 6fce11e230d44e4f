"""Devices on which plans run (CPU, GPUs, simulated devices), and calibration of the host.

``kind`` has the interface of a kind of device, the CPU's, the table of all kinds, and the option ``--device``.
``protocol`` is the interface of open devices with streams, which ``cuda.device`` and ``simulated`` implement. ``host``
has the arena and the BLAS threads of the CPU. ``calibrate``, ``calibrate_files`` and ``calibrate_kernels`` measure the
machine, ``stored`` keeps the result, and ``measure`` and ``peaks`` are quick measurements for ``einturnip doctor``.
"""
