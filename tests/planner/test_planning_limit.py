"""Reading and planning stop before the process exceeds its limit, and name a lower bound of what is needed."""

import importlib
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from einturnip.api.program import Program
from einturnip.core import program_limits as module
from einturnip.core.errors import CapacityError, NeedsMore
from einturnip.core.program_limits import checkpoint, planning_limit, require_room
from einturnip.core.units import MIB
from einturnip.eingraph.types import TensorPiece
from einturnip.lang import compile_text
from einturnip.planner.codec import NotEncodable
from einturnip.planner.plan_store import PLAN
from einturnip.planner.variants import _smaller_refusal


@pytest.fixture
def resident(monkeypatch):
    """Sets the bytes that are resident at each reading; the last number repeats."""
    monkeypatch.setattr(module, "INTERVAL_SECONDS", 0.0)

    def sequence(*sizes: int) -> None:
        readings = itertools.chain(sizes, itertools.repeat(sizes[-1]))
        monkeypatch.setattr(module, "present_nbytes", lambda: next(readings) * MIB)

    return sequence


def test_a_limit_that_is_near_stops_planning(resident):
    resident(90, 98, 100, 100)
    with planning_limit(100 * MIB, run_nbytes=9 * MIB):
        checkpoint()
        checkpoint()
        with pytest.raises(NeedsMore, match=r"needs at least 109 MiB, and 100 MiB are allowed") as error:
            checkpoint()
    assert error.value.needed == 109 * MIB
    checkpoint()  # outside the context there is no limit


def test_planning_goes_on_if_trimming_the_heap_makes_room(resident):
    resident(100, 98, 50)
    with planning_limit(100 * MIB, run_nbytes=0):
        checkpoint()
        checkpoint()


def test_the_margin_grows_with_what_planning_takes(resident):
    resident(20, 79, 82)
    with planning_limit(90 * MIB, run_nbytes=0):
        checkpoint()
        checkpoint()  # 79 + 1 + 59 / 8
        with pytest.raises(NeedsMore):
            checkpoint()


def test_a_bound_is_never_below_the_limit(resident):
    resident(100, 98.5)
    with planning_limit(100 * MIB, run_nbytes=0), pytest.raises(NeedsMore) as error:
        checkpoint()
    assert error.value.needed == 100 * MIB


def test_sizes_in_messages_count_from_the_base(resident):
    resident(60)
    with (
        planning_limit(70 * MIB, run_nbytes=9 * MIB, base=-50 * MIB),
        pytest.raises(NeedsMore, match="at least 34.0 MiB, and 20.0 MiB are allowed: the package p, which its files"),
    ):
        require_room(15 * MIB, "the package p")


def test_what_memory_does_not_suffice_to_encode_is_not_cached(resident):
    data = b"".join(PLAN.to_bytes(TensorPiece(0, (), ())))
    resident(99)
    with planning_limit(100 * MIB, 0):
        with pytest.raises(NotEncodable, match="needs at least"):
            PLAN.to_bytes(TensorPiece(0, (), ()))
        with pytest.raises(NeedsMore):
            PLAN.from_bytes(data)


def test_no_limit_within_a_limit_keeps_it(resident):
    resident(99)
    with planning_limit(50 * MIB, 0):
        with planning_limit(None, 0), pytest.raises(NeedsMore):
            checkpoint()
        with planning_limit(200 * MIB, 0):
            checkpoint()


def test_a_minimum_is_preferred_to_a_lower_bound():
    minimum, bound = CapacityError("minimum", 90), NeedsMore("more", 70)
    assert _smaller_refusal(minimum, bound) is _smaller_refusal(bound, minimum) is minimum
    assert _smaller_refusal(CapacityError("", 95), minimum) is minimum
    assert _smaller_refusal(NeedsMore("", 95), bound) is bound


LOOP = """
input A : f32[n, m]
x[i, j] = A[i, j]
for t in 0 .. 5 {
  v[i] = sum[j] x[i, j]
  x[i, j] = tanh(x[i, j] * NUMBER + v[i])
}
output x
"""


def test_reading_a_program_stops_at_the_limit(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL_SECONDS", 0.0)
    with planning_limit(1 * MIB, 0), pytest.raises(NeedsMore, match="planning takes all of it"):
        compile_text(LOOP.replace("NUMBER", "2"))


@pytest.mark.parametrize(
    "place",
    [
        *("lang.lexer", "lang.syntax.parser", "lang.elaborate.targets", "eingraph.builder"),
        *("tiling.search", "tiling.price", "taskgraph.columns", "kernels.select", "memgraph.columns"),
    ],
)
def test_each_part_of_reading_and_planning_looks_at_the_limit(monkeypatch, place):
    text = LOOP.replace("NUMBER", f"0.{sum(map(ord, place))}")  # kernels of another number are cached

    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    monkeypatch.setattr(importlib.import_module(f"einturnip.{place}"), "checkpoint", stop)
    with pytest.raises(Stopped):
        Program(compile_text(text), Path(), {}).plan(A=np.ones((70, 70), np.float32), arena="16KiB")


def test_an_import_stops_at_the_limit(resident):
    name = "einturnip.testing.spelling"
    sys.modules.pop(name, None)
    resident(100)
    with planning_limit(100 * MIB, 0), pytest.raises(NeedsMore, match="planning takes all of it"):
        importlib.import_module(name)
    assert importlib.import_module(name)  # outside the context there is no limit
