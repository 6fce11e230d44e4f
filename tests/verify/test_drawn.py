"""Small plans compared with every order of their ops, and changed plans with orders near to the change."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from einturnip.testing import DrawnCase, programs
from tests.drawn import examples
from tests.memgraph.cases import PROGRAMS
from tests.test_irs import placed
from tests.verify.drawing import small_plans
from tests.verify.mutations import CHANGES, mutated
from tests.verify.oracle import keeps_its_word, seems_to_keep_its_word
from tests.verify.plans import Json, real, text_of, verdict_of

# With this number of orders the judge is nearly sure: each op that shares bytes with the change is tried first.
NEAR, DRAWS = (24, 2) if settings().max_examples > 1000 else (16, 1)


@given(small_plans())
def test_the_verdict_is_what_trying_every_order_shows(plan: Json) -> None:
    verdict = verdict_of(plan)
    why = keeps_its_word(plan)
    note("\n".join(map(str, plan["ops"])))
    note(f"{why}; {[fault.text for fault in verdict.faults]}")
    event("valid" if verdict.valid else "invalid")
    assert verdict.valid == (why is None)


@given(programs(), st.integers(1, 3))
def test_what_the_planner_plans_is_valid(case: DrawnCase, tile: int) -> None:
    note(case.text)
    verdict = verdict_of(text_of(placed(case, tile)))
    assert verdict.valid, [fault.text for fault in verdict.faults]
    assert verdict.implied == 0


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("spare", [0, 128, 1 << 16])
def test_real_plans_are_valid(name: str, spare: int) -> None:
    verdict = verdict_of(real(name, 2, spare))
    assert verdict.valid and verdict.implied == 0 and verdict.n_ops > 50


def judged(name: str, which: int, seed: int) -> tuple[bool, str | None] | None:
    """A change of a real plan: whether it is accepted, and where an order goes wrong."""
    rng = random.Random(seed)
    program, tile, spare = [(p, t, s) for p in sorted(PROGRAMS) for t, s in ((3, 0), (3, 128), (2, 64), (3, 1 << 16))][
        which
    ]
    found = mutated(json.loads(real(program, tile, spare)), name, rng)
    if found is None:
        return None
    plan, touched = found
    why = seems_to_keep_its_word(plan, near(plan, touched, rng), rng, DRAWS)
    return verdict_of(plan).valid, why


def near(plan: Json, touched: list[int], rng: random.Random) -> list[int]:
    """The ops that changed, and some that share bytes with them."""
    rows = [row for x in touched for side in ("reads", "writes") for row in plan["ops"][x][side]]
    others = [
        x
        for x, op in enumerate(plan["ops"])
        if any(
            row[0] == mine[0] and row[1] < mine[1] + mine[2] and mine[1] < row[1] + row[2]
            for side in ("reads", "writes")
            for row in op[side]
            for mine in rows[:8]
        )
    ]
    rng.shuffle(others)
    return list(dict.fromkeys([*touched[: NEAR // 2], *others]))[:NEAR]


@pytest.mark.timeout(7200)  # for the deep profile
@settings(max_examples=max(examples(200), 2 * settings().max_examples // 3))
@given(st.sampled_from(sorted(CHANGES)), st.integers(0, 11), st.integers(0, 1 << 32))
def test_no_change_that_goes_wrong_is_accepted(name: str, which: int, seed: int) -> None:
    found = judged(name, which, seed)
    if found is not None:
        accepted, why = found
        event(f"{'accepted' if accepted else 'refused'}, {'wrong in some order' if why else 'no order seen that is'}")
        assert not (accepted and why), why


def test_changes_of_each_kind_are_accepted_or_refused_as_they_should_be() -> None:
    """Harmless ones are accepted: a judge that refuses all plans would pass the test above."""
    for name in ("give_other_numbers", "list_the_ops_in_another_order"):
        assert judged(name, 1, 0) == (True, None)
    found: Counter[bool] = Counter()
    for seed in range(40):
        for name in ("drop_a_dependency", "take_an_op_out_of_its_unit"):
            verdict = judged(name, seed % 12, seed)
            assert verdict is not None
            found[verdict[0]] += 1
    # The planner leaves no dependency that is not needed.
    assert found[True] == 0
