"""Runs on devices with streams: ``driver`` issues ops, ``run`` divides host memory and starts a run."""
