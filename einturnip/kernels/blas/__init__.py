"""Contractions as matrix products: the labels of rows and columns, packing, and the BLAS call.

``matrices`` plans the products, ``contraction`` is the kernel, ``cblas`` calls the BLAS that NumPy has loaded.
"""
