"""Shares of the work: their numbers follow the rates, and slow sites are refused by name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.core.errors import BindError
from einturnip.cost.site_rates import parse_rates, relative
from einturnip.tiling.site_shares import numbers_of_shares, sites_of_shares
from einturnip.tuning.sites import MAX_SHARES_OF_SITE, MAX_UNEVEN, SHARES_UNEVEN


def test_equal_sites_have_a_share_each() -> None:
    assert numbers_of_shares([3.0] * 5) == [[(1,) * 5]]


@pytest.mark.parametrize(
    ("rates", "counts"), [((2, 1), (2, 1)), ((1, 0.5, 1), (2, 1, 2)), ((1, 1, 5), (1, 1, 5)), ((0.75, 0.5), (3, 2))]
)
def test_shares_are_in_proportion_to_rates(rates: tuple[float, ...], counts: tuple[int, ...]) -> None:
    assert numbers_of_shares(rates)[0][0] == counts


@given(rates=st.lists(st.floats(0.2, 5), min_size=2, max_size=12))
def test_no_site_takes_much_longer_than_the_mean(rates: list[float]) -> None:
    divisions = [counts for found in numbers_of_shares(rates) for counts in found]
    assert len(set(divisions)) == len(divisions)
    for counts in divisions:
        assert len(counts) == len(rates) and min(counts) >= 1 and sum(counts) <= MAX_SHARES_OF_SITE * len(rates)
        mean = sum(counts) / sum(rates)
        allowed = SHARES_UNEVEN if len(divisions) > 1 or len(set(rates)) == 1 else MAX_UNEVEN
        assert max(n / rate for n, rate in zip(counts, rates, strict=True)) <= allowed * mean + 1e-9


def test_the_shares_of_a_site_are_neighbours() -> None:
    assert sites_of_shares((2, 1, 3)) == (0, 0, 1, 2, 2, 2)


def test_a_site_that_is_too_slow_is_named() -> None:
    with pytest.raises(BindError, match=r"site 1 has 0.001 of the rate of the 2 sites together.*help: plan without it"):
        numbers_of_shares([1000.0, 1.0])


@pytest.mark.parametrize("text", ["", "2,", "2,x", "0,1", "-1,1", "nan,1", "inf,1", [], [0], [None, 1]])
def test_rates_are_positive_numbers(text: str) -> None:
    message = re.escape(f"{text!r} are not rates of sites. help: write a positive number for each, such as 2,1")
    with pytest.raises(BindError, match=message):
        parse_rates(text)


def test_rates_count_relative_to_the_fastest() -> None:
    assert relative(parse_rates("4,2,1")) == (1.0, 0.5, 0.25)
    assert relative(parse_rates([3, 3])) == relative(()) == ()
