"""Larger plans in many drawn orders: an accepted plan fails in none, a refused one fails in some."""

from __future__ import annotations

import json
import random

import pytest

from tests.memgraph.cases import PROGRAMS
from tests.verify.extensions import Extensions, plans
from tests.verify.plans import real, verdict_of

EXECUTIONS = 100_000


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_drawn_executions_agree_with_the_verdict(name: str) -> None:
    text = real(name, 2, 128)
    assert verdict_of(text).valid
    assert not Extensions(json.loads(text)).drawn(60, 0).any()


def test_a_dropped_dependency_is_refused_and_seen() -> None:
    """Else no execution that goes wrong would ever be noticed."""
    text = real("product", 2, 128)
    rng = random.Random(0)
    refused = seen = 0
    for seed in range(4):
        plan = json.loads(text)
        rng.choice([op for op in plan["ops"] if len(op["after"]) > 1])["after"].pop()
        refused += not verdict_of(plan).valid
        seen += bool(Extensions(plan, json.loads(text)).drawn(120, seed).any())
    assert refused == 4 and seen >= 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_drawn_executions_agree_with_the_verdict() -> None:
    """``python -m tests.verify.extensions`` counts the same in parts."""
    found = plans()
    for text in found.values():
        assert verdict_of(text).valid
        extensions = Extensions(json.loads(text))
        for seed in range(-(-EXECUTIONS // 1000 // len(found))):
            assert not extensions.drawn(1000, seed).any(), seed
