"""Benchmarks: einturnip beside what a user would pick instead, interleaved in one run."""
