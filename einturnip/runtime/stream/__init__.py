"""Runs on devices with streams: ``driver`` issues ops, ``run`` sets up arenas and host memory."""
