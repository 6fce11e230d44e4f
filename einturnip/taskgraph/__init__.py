"""Decomposition to TaskGraph: tile tasks and their order."""
