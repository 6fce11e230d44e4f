"""The memory that a refusal names is enough: at once, or after one more refusal that more memory made exact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import CapacityError
from einturnip.planner.budget import PlanSize, overhead_nbytes
from einturnip.testing import DrawnCase, programs
from einturnip.tuning.memory import READ_NBYTES, USUAL_READS
from tests.drawn import examples
from tests.robustness.programs import ENVIRONMENT

CHAIN = """
input A : f32[i, j], B : f32[j, k], C : f32[k, l]
H[i, l] = sum[j, k] A[i, j] * B[j, k] * C[k, l]
P[i, l] = exp(-H[i, l])
Y[i] = max[l] P[i, l]
output Y, H
"""
STATE = """
state W : f32[i, j], V : f32[i, j]
input X : f32[j]
Y[i] = sum[j] W[i, j] * X[j]
W[i, j] <- W[i, j] + Y[i] * X[j]
V[i, j] <- 0.5 * V[i, j] + W[i, j]
output Y
"""


def planned(program: et.Program, kind: str, **data: object) -> tuple[et.Plan, int]:
    """The plan for what refusals name, and how many there were."""
    budget = 1
    for refusals in range(4):  # results alone may be too large: that is said first
        try:
            return program.plan(**{kind: budget}, workers=2, data=data), refusals
        except CapacityError as error:
            assert error.needed > budget
            budget = error.needed
    raise AssertionError("refused four times")


@given(programs())
@settings(max_examples=examples(15), deadline=None)
def test_the_arena_that_is_named_will_do(case: DrawnCase) -> None:
    planned(et.compile(case.text, dims=case.dims), "arena", **case.inputs)


@given(st.lists(st.integers(100, 900), min_size=4, max_size=4))
@settings(max_examples=examples(6), deadline=None)
def test_the_memory_that_is_named_will_do(sizes: list[int]) -> None:
    data = {x: np.ones(sizes[at : at + 2], np.float32) for at, x in enumerate("ABC")}
    plan, _ = planned(et.compile(CHAIN), "memory", **data)
    np.testing.assert_allclose(plan.run()["H"], sizes[1] * sizes[2])


# In a process of its own: what an earlier search left behind would be there already.
PLANNED = """
import sys
import einturnip as et
from einturnip.core.errors import CapacityError
product = et.compile("input A : f32[i,k], B : f32[k,j]\\nC[i,j] = A[i,k] * B[k,j]\\noutput C\\n")
try:
    product.plan(A="a.npy", B="b.npy", out={"C": "c.npy"}, workers=2, memory=int(sys.argv[1]))
except CapacityError as error:
    print(error.needed, type(error).__name__)
"""


def test_the_memory_that_is_named_leaves_room_for_the_search(tmp_path: Path) -> None:
    """Where hardly anything fits there is little to search; in what is named there is more."""
    for name in "ab":  # no plan reads them
        np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", np.float32, (10_000, 10_000))
    said, bound = [1], True
    for _ in range(4):
        line = [sys.executable, "-c", PLANNED, str(said[-1])]
        environment = ENVIRONMENT | {"EINTURNIP_PLANS": "off"}
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if not done.stdout:
            return
        needed, kind = done.stdout.split()
        assert bound, said  # a minimum was named, and refused
        said.append(int(needed))
        bound = kind == "NeedsMore"
    pytest.fail(f"refused in {said}")


def test_states_leave_memory_rather_than_let_a_step_be_refused() -> None:
    """There is room for a state in half of the memory, but not for the step in the rest."""
    data, x = {name: np.ones((2000, 1000), np.float32) for name in "WV"}, np.zeros(1000, np.float32)
    x[0] = 1
    program = et.compile(STATE)
    memory, tries = 1, 0
    while tries < 3:  # what a refusal names without room for a plan is a formula's, and may be refused once more
        tries += 1
        try:
            with program.session(data=data, memory=memory, workers=2) as session:
                assert (session.step(X=x)["Y"] == 1).all() and (session.step(X=x)["Y"] == 2).all()
                assert (session.state("W")[:, 0] == 4).all()
        except CapacityError as refused:
            memory = refused.needed + (8 << 20)
        else:
            break
    else:
        pytest.fail(f"refused {tries} times, at last naming {memory} bytes")
    assert tries > 1


def test_operands_beyond_the_usual_count() -> None:
    few, many = (overhead_nbytes(0, 2, PlanSize(1000, reads)) for reads in (USUAL_READS * 1000, 40_000))
    assert many - few == (40_000 - USUAL_READS * 1000) * READ_NBYTES
    assert PlanSize(1000, ops=3000).nbytes > PlanSize(1000).nbytes
