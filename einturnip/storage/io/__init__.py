"""Moves bytes between files and memory: batched calls, coalesced reads, page-cache eviction, spill."""
