"""Texts of links between memories."""

from __future__ import annotations

import pytest

from einturnip.core.errors import BindError
from einturnip.cost.site_rates import MachineLink, parse_link


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("1.25GB/s,50us", MachineLink(1.25e9, 50e-6)),
        ("10Gbit/s,50us", MachineLink(1.25e9, 50e-6)),
        ("100 Mbit/s, 1 ms", MachineLink(12.5e6, 1e-3)),
        ("1GiB/s,0s", MachineLink(float(1 << 30), 0.0)),
        ("8Mbit/s,.5µs", MachineLink(1e6, 0.5e-6)),
    ],
)
def test_links(text: str, link: MachineLink) -> None:
    found = parse_link(text)
    assert found == pytest.approx(link) and parse_link(str(found)) == pytest.approx(found)


@pytest.mark.parametrize(
    "text",
    ["nonsense", "1GB/s", "1GB,5us", "50us,1GB/s", "1GB/s,5", "1GB/s,-5us", "1.2.3GB/s,5us", "0GB/s,1us", "1G/s,5us"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BindError, match="help: write|more than 0 bytes"):
        parse_link(text)


def test_seconds_are_the_latency_and_the_bytes_at_the_rate() -> None:
    assert parse_link("1GB/s,2ms").seconds(3_000_000) == pytest.approx(0.005)


@pytest.mark.parametrize("bandwidth", [50.0, 1234.0, 5e4, 1e5, 1.25e9, 9e11])
@pytest.mark.parametrize("latency", [0.0, 1e-9, 5e-5, 3600.0])
def test_a_link_is_printed_as_it_is_read(bandwidth: float, latency: float) -> None:
    assert parse_link(str(MachineLink(bandwidth, latency))) == pytest.approx((bandwidth, latency))
