"""CUDA C++ for tile kernels: sources, how they are launched, and their compiler. Nothing here needs a GPU or CuPy."""
