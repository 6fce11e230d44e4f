"""Hypothesis profiles: ``default`` and ``ci`` draw the same every time; ``deep`` draws anew, for a night."""

from hypothesis import HealthCheck, settings

COMMON = dict(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("default", max_examples=60, derandomize=True, **COMMON)
settings.register_profile("ci", max_examples=300, derandomize=True, print_blob=True, **COMMON)
settings.register_profile("deep", max_examples=20_000, print_blob=True, **COMMON)
settings.load_profile("default")
