"""Wires: how messages and values travel between sites. ``protocol`` first, then one module per wire."""
