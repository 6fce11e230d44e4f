"""NVIDIA GPUs through CuPy's low-level bindings.

``kind`` is their DeviceKind, ``probe`` finds usable GPUs, ``device`` implements Device, ``calls`` makes the CUDA calls.

``cublas`` binds the product function of cuBLAS. ``docs/gpu.md`` says what is tested on a GPU and what without one.
"""
