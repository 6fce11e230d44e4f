"""Sizes as people write them."""

import pytest

from einturnip.core.errors import BindError
from einturnip.core.units import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("512MB", 512_000_000),
        ("2GiB", 2 << 30),
        ("1.5 gib", 3 << 29),
        ("64kib", 65536),
        ("4096", 4096),
        ("10B", 10),
        (".5kB", 500),
        (77, 77),
    ],
)
def test_sizes_that_are(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "GiB", "2G", "-1MiB", "0", "2 Gigs", "1e9", "0.1B", "twelve", "1MiB 2"])
def test_sizes_that_are_not(text):
    with pytest.raises(BindError, match="size|unit"):
        parse_size(text)


def test_a_size_that_may_mean_two_things_shows_both():
    with pytest.raises(BindError, match="write 2GiB or 2GB"):
        parse_size("2G")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (10 << 20, "10.0 MiB"),
        (200 << 30, "200 GiB"),
        (1 << 42, "4.00 TiB"),
    ],
)
def test_sizes_are_shown_short(nbytes, text):
    assert format_size(nbytes) == text


@pytest.mark.parametrize("size", [1.5, "1.5", "0.5B", 1e9, float("nan"), float("inf")])
def test_a_fraction_without_a_unit_is_refused(size: float | str) -> None:
    with pytest.raises(BindError, match="help|is not a size"):
        parse_size(size)  # type: ignore[arg-type]
