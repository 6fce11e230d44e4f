"""How many examples a drawn test draws: all of them by ``make slow``, a quarter of them by ``make check``."""

from hypothesis import settings

FULL = 60
"""The examples of a test that states no number, under the profile ``full``."""
SAMPLE = FULL // 4
MIN = 3
"""The first example is the simplest there is, which shows little."""


def examples(count: int) -> int:
    """Return the number of examples for a test that states ``count`` of them, under the profile in use."""
    return max(min(count, MIN), count * min(settings().max_examples, FULL) // FULL)
