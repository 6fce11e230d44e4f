"""Gradients: the reverse sweep (``reverse``), and the adjoints of einsums, accesses and pieces."""
