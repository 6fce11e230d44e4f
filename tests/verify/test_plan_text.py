"""Plans as text: any white space, any size of block, and the path of whatever has the wrong form."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.verify import stream
from einturnip.verify.read import read
from einturnip.verify.stream import JsonText
from einturnip.verify.types import NotAPlan
from tests.verify.faults import good
from tests.verify.plans import Json, verdict_of

Edit = Callable[[Json], Any]


def refused(plan: Json | str | bytes) -> str:
    with pytest.raises(NotAPlan) as error:
        verdict_of(plan)
    assert error.value.exit_code == 2
    return str(error.value)


def wrong(path: tuple[Any, ...], found: Any) -> Json:
    """The good plan with one field changed."""
    plan = copy.deepcopy(good())
    at: Any = plan
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = found
    return plan


@pytest.mark.parametrize(
    ("path", "found", "message"),
    [
        (
            ("schema",),
            "einturnip.taskgraph/1",
            "schema: expected 'einturnip.memgraph/1' or 'einturnip.sites/1', found 'einturnip.taskgraph/1'",
        ),
        (("schema",), 3, "schema: expected"),
        (("program",), None, "program: expected the name of a program, found None"),
        (("budget",), [], "budget: expected an object, found a list"),
        (("tiers",), {}, "tiers: expected a list, found an object"),
        (("tiers", 1), "disk", "tiers[1]: expected an object, found 'disk'"),
        (("tiers", 1, "id"), 4, "tiers[1].id: expected a name, found 4"),
        (("tiers", 1, "id"), "X", "tiers[2].id: there is a tier 'X' already"),
        (("tiers", 0, "kind"), "memory", "tiers[0].kind: expected one of compute, host, store, input, output"),
        (("tiers", 0, "capacity"), -1, "tiers[0].capacity: expected a number of bytes or null, found -1"),
        (("tiers", 0, "capacity"), 64.0, "tiers[0].capacity: expected a number of bytes or null, found 64.0"),
        (("ops",), {}, "ops: expected a list, found an object"),
        (("ops", 3), 7, "ops[3]: expected an object, found 7"),
        (("ops", 3, "id"), "3", "ops[3].id: expected an integer, found '3'"),
        (("ops", 3, "id"), True, "ops[3].id: expected an integer, found True"),
        (("ops", 3, "id"), 2, "ops[3].id: 2 is the id of ops[2], too"),
        (("ops", 3, "id"), 1 << 70, "ops[3].id: expected an integer of 64 bits"),
        (("ops", 3, "kind"), "compute", "ops[3].kind: expected one of load, kernel, move, aggregate, offload, reload"),
        (("ops", 3, "kind"), [], "ops[3].kind: expected one of load, kernel"),
        (("ops", 3, "lane"), 1, "ops[3].lane: expected the name of a lane, found 1"),
        (("ops", 3, "task"), None, "ops[3].task: expected an integer, found None"),
        (("ops", 3, "unit"), 1.5, "ops[3].unit: expected an integer or null, found 1.5"),
        (("ops", 3, "seconds"), "1", "ops[3].seconds: expected a number, found '1'"),
        (("ops", 3, "after"), 1, "ops[3].after: expected a list, found 1"),
        (("ops", 3, "after", 0), None, "ops[3].after[0]: expected an integer, found None"),
        (("ops", 3, "after", 0), 99, "ops[3].after[0]: there is no op 99"),
        (("ops", 3, "reads"), {}, "ops[3].reads: expected a list, found an object"),
        (("ops", 3, "reads", 1), [1, 2], "ops[3].reads[1]: expected [tier, offset, nbytes, value] or, in a file"),
        (("ops", 3, "reads", 1, 0), "gpu", "ops[3].reads[1][0]: there is no tier 'gpu'"),
        (("ops", 3, "reads", 1, 0), 0, "ops[3].reads[1][0]: expected the id of a tier, found 0"),
        (("ops", 3, "writes", 0, 1), 1.0, "ops[3].writes[0][1]: expected an integer (offset), found 1.0"),
        (("ops", 3, "writes", 0, 1), 1 << 62, "ops[3].writes[0][1]: expected an offset of less than 61 bits"),
        (("ops", 3, "writes", 0, 2), -8, "ops[3].writes[0][2]: expected a number of bytes from 0"),
        (("ops", 3, "writes", 0, 3), "v", "ops[3].writes[0][3]: expected an integer (value), found 'v'"),
        (
            ("ops", 3, "writes", 0),
            ["cpu:0", 0, 8, 3, [[2, 16]]],
            "ops[3].writes[0][4]: only in files do extents repeat",
        ),
        (("ops", 11, "writes", 0, 4), 3, "ops[11].writes[0][4]: expected a list of [count, stride], found 3"),
        (("ops", 11, "writes", 0, 4), [[2]], "ops[11].writes[0][4][0]: expected [count, stride], found a list"),
        (("ops", 11, "writes", 0, 4), [[2, 0.5]], "ops[11].writes[0][4][0][1]: expected an integer (stride)"),
        (("ops", 11, "writes", 0, 4), [[-2, 8]], "ops[11].writes[0][4][0][0]: expected a count of 0 or more, found -2"),
        (("ops", 11, "writes", 0, 4), [[1 << 40, 1 << 40]], "ops[11].writes[0][4]: expected an extent of at most"),
    ],
)
def test_the_path_of_a_bad_field_is_told(path: tuple[Any, ...], found: Any, message: str) -> None:
    assert message in refused(wrong(path, found))


@pytest.mark.parametrize("field", ["schema", "program", "budget", "predicted", "tiers", "ops"])
def test_a_missing_field(field: str) -> None:
    plan = good()
    del plan[field]
    assert refused(plan) == f"the field '{field}' is missing"


@pytest.mark.parametrize("field", ["id", "kind", "lane", "task", "reads", "writes", "after", "unit", "seconds"])
def test_a_missing_field_of_an_op(field: str) -> None:
    plan = good()
    del plan["ops"][5][field]
    assert refused(plan) == f"ops[5]: the field '{field}' is missing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a plan: expected a JSON object"),
        ("[1, 2]", "is not a plan: expected a JSON object"),
        ("{", "line 1, column 2: expected a value"),
        ('{"schema"', "line 1, column 10: expected ':'"),
        ('{\n "schema": "einturnip.memgraph/1",\n "ops": [{"id": 1]}', "line 3, column 18: expecting ',' delimiter"),
        ('{"ops": [}', "line 1, column 10: expected a value"),
        ('{"ops": [1 2]}', "line 1, column 12: expected ',' or ']'"),
        ('{"tiers": [1, 2}', "column 16: expecting ',' delimiter"),
        ('{"a": tru}', "line 1, column 7: expected a value"),
        ('{"a": "b', "line 1, column 7: unterminated string"),
        ('{"a": 1} x', "line 1, column 10: expected the end of the text"),
        ("{3: 1}", "line 1, column 2: expected a name in double quotes"),
        ('{"a": ' + "[" * 100_000, "too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "integer"),
        (b'{"a": "\xff"}', "is not UTF-8"),
    ],
)
def test_what_is_no_json(text: str | bytes, message: str) -> None:
    assert message in refused(text)


def test_a_line_far_into_the_text() -> None:
    text = json.dumps(good()).replace('{"id": 12', '\n\n {"id": 12').replace('"id": 13', '"id": 13 13')
    assert "line 3," in refused(text)


class Dribble(io.BytesIO):
    """Gives a few bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self.step = step

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.step)


@given(st.integers(1, 40), st.sampled_from([None, 0, 1]), st.booleans(), st.booleans())
def test_pieces_and_white_space_make_no_difference(step: int, indent: int | None, late: bool, marked: bool) -> None:
    plan = good()
    if late:  # tiers behind the ops
        plan["tiers"] = plan.pop("tiers")
    plan["note"] = 'e\u0301\U0001f600 \\ " é'
    text = json.dumps(plan, indent=indent, ensure_ascii=step % 2 == 0).encode("utf-8-sig" if marked else "utf-8")
    found = read(Dribble(text, step), "plan.json")
    expected = read(io.BytesIO(json.dumps(good()).encode()), "plan.json")
    for column in ("ids", "kind", "task", "unit", "after_ptr", "after", "values", "units"):
        assert getattr(found, column).tolist() == getattr(expected, column).tolist()
    assert found.read.start.tolist() == expected.read.start.tolist()
    assert found.tiers == expected.tiers and found.repeats.axes == expected.repeats.axes


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    ),
    st.integers(1, 7),
)
def test_any_value_is_read_as_json_reads_it(found: Any, step: int) -> None:
    text = json.dumps(found)
    assert JsonText(Dribble(text.encode(), step), "text").value() == json.loads(text)


def test_what_stands_beside_the_fields_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = good()
    plan["log"] = list(range(10_000))
    plan["more"] = {"a": [1, {"b": None}]}
    for op in plan["ops"]:
        op["colour"] = "red"
    monkeypatch.setattr(stream, "CHUNK_NBYTES", 64)
    assert verdict_of(plan).valid


def test_runs_that_touch_are_one_run() -> None:
    plan = good()
    plan["ops"][15]["writes"][0] = ["Y", 16, 1, 9, [[1, 77], [2, 4], [2, 2], [2, 1]]]
    assert verdict_of(plan).valid


def test_accesses_of_no_bytes_are_none() -> None:
    plan = good()
    plan["ops"][0]["reads"].append(["X", 400, 0, 12345])
    plan["ops"][0]["reads"].append(["X", 400, 8, 12346, [[0, 8]]])
    plan["ops"][6]["writes"].append(["cpu:0", 64, 0, 12347])
    assert verdict_of(plan).valid


def test_an_empty_plan_is_valid() -> None:
    plan = good()
    plan["ops"] = []
    assert verdict_of(plan).valid


def test_a_unit_of_ops_that_touch_no_bytes() -> None:
    plan = good()
    plan["ops"] = plan["ops"][:3]
    for op in plan["ops"]:
        op.update(reads=[], writes=[], unit=4, kind="kernel")
    verdict = verdict_of(plan)
    assert {rule.value: n for rule, n in verdict.counts.items()} == {"unit": 3}


@pytest.mark.parametrize("text", ["1e+16", "1.5", "-0.25e-3", "12E5", "[1e2, 1.5]"])
def test_a_number_cut_anywhere_is_one_number(text: str) -> None:
    for step in range(1, len(text) + 1):
        assert JsonText(Dribble(text.encode(), step), "text").value() == json.loads(text)
