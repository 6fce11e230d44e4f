"""Generates and compiles CUDA C++ for tile kernels; needs neither a GPU nor CuPy.

``generate`` chooses a kind of kernel by the einsum: ``elementwise``, ``folding``, ``products``, ``scatters`` or
``regions``. ``arguments`` defines the parameters of a kernel, ``scalars`` writes expressions, ``states`` aggregations.
``types`` describes the result. ``gemm`` plans calls of cuBLAS. ``nvrtc`` compiles, ``cache`` keeps the machine code.
"""
