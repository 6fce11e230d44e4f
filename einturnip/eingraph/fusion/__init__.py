"""Fusion: merges einsums that pass tiles to one another into one region.

``fuse`` is the entry; ``groups`` and ``rows`` find candidates; ``regions`` derives the region from the laws of its
aggregations.
"""
