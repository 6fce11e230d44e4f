"""The BLAS library that kernels call. Others, such as SciPy's, may be loaded at any time and are not limited."""

from einturnip.devices.host import host_info


def blas_thread_count() -> int:
    """Threads that the library uses now."""
    (count,) = [library.threads for library in host_info().blas if library.called]
    return count
