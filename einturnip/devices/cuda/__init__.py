"""A GPU through CuPy's low-level bindings. Not yet run on a GPU; see docs/gpu.md for what was proven without one."""
