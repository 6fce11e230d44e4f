"""Rewrites of an EinGraph that preserve every output's value.

``passes`` lists them in order; ``contraction_order`` orders products of many tensors.
"""
