"""Many changes of real plans, counted: none that goes wrong in some order is accepted."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.verify.mutations import CHANGES
from tests.verify.test_drawn import judged

WRONG = 10_000


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_ten_thousand_changes_that_go_wrong_are_refused() -> None:
    names, found, seed = sorted(CHANGES), Counter[tuple[bool, bool]](), 0
    while found[False, True] < WRONG:
        rng = random.Random(seed)
        verdict = judged(rng.choice(names), rng.randrange(12), seed)
        if verdict is not None:
            accepted, why = verdict
            assert not (accepted and why), (seed, why)
            found[accepted, why is not None] += 1
        seed += 1
    assert found[True, False] > WRONG // 20  # a judge that refuses all would pass the above
