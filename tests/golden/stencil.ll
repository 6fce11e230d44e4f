; NumPy computes all kernels
