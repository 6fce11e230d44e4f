"""TaskGraph to MemGraph: every tile a place, every transfer an op (TURNIP)."""
