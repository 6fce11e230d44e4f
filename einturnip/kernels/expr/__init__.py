"""Scalar expressions as graphs of primitive array operations over blocks of a label space.

Read in this order: ``primitives`` (operations that allocate nothing), ``graph``, ``lower`` (expression to graph),
``fold`` (aggregations), ``window`` (views of tiles through affine indices), ``space`` (blocks and loops), ``assemble``
(registers).
"""
