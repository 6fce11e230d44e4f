"""Outputs in files: written by region, published when complete; and where states stay between steps."""
