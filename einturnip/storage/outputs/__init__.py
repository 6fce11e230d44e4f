"""Outputs in files, written by region and published when complete.

And storage of states between steps.
"""
