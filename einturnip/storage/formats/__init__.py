"""File formats, one module each: ``.npy``, ``.npz``, safetensors, GGUF, HDF5, Zarr."""
