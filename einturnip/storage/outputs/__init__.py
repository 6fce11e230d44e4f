"""Outputs in files, written by region and published when complete; storage of states between steps."""
