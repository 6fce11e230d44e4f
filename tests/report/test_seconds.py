"""Durations as reports write them."""

import pytest

from einturnip.core.units import format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12.3 ms"),
        (5.214, "5.21 s"),
        (59.4, "59.4 s"),
        (59.9, "1 min"),
        (200.4, "3 min 20 s"),
        (3599.7, "1 h"),
        (18_720, "5 h 12 min"),
        (41 * 86400, "41 days"),
        (1e13, "3.17e+05 years"),
        (1e300, "3.17e+292 years"),
        (10**400, "3.17e+392 years"),
    ],
)
def test_a_duration_is_in_the_largest_units_that_tell_it(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
