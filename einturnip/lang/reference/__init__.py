"""The meaning of a Program in plain NumPy, equation by equation; gradients by perturbation.

Shares no code with kernels.
"""
