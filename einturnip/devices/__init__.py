"""Devices on which plans run (CPU, GPUs, simulated devices), and calibration of the host.

``host`` has the arena and the BLAS threads of the CPU. ``protocol`` is the interface of devices with streams, which
``cuda.device`` and ``simulated`` implement. ``choice`` parses ``--device``; ``probe`` finds usable GPUs. ``calibrate``,
``calibrate_files`` and ``calibrate_kernels`` measure the machine, ``stored`` keeps the result, and ``measure`` and
``peaks`` are quick measurements for ``einturnip doctor``.
"""
