"""Hypothesis strategies and oracles for property tests of tensor programs."""
