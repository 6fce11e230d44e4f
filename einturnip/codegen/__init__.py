"""Scalar expressions and contractions to kernels."""
