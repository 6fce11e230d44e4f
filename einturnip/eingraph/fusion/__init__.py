"""Fusion: einsums that hand tiles to one another become one region.

``fuse`` is the entry, ``groups`` and ``rows`` find what may be fused, ``regions`` derives the region from the laws of
its aggregations.
"""
