"""Reference semantics of programs in plain NumPy, equation by equation.

Gradients by finite differences.

It shares no code with kernels.
"""
