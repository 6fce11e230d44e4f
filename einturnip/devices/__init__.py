"""Devices on which plans run (CPU, GPUs, simulated devices), and calibration of the host.

``choice`` has the table of the kinds of devices and parses ``--device``; ``kind`` is the interface of a kind, and the
CPU's. ``protocol`` is the interface of open devices with streams, which ``cuda.device`` and ``simulated``
implement. ``host`` has the arena and the BLAS threads of the CPU. ``calibrate``, ``calibrate_files`` and
``calibrate_kernels`` measure the machine, ``stored`` keeps the result, and ``measure`` and ``peaks`` are quick
measurements for ``einturnip doctor``.
"""
