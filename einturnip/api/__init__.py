"""The Python API, exported by ``einturnip``: compile, Program, Plan, einsum, open."""
