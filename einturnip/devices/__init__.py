"""Where ops run: the host's arena and kernels."""
