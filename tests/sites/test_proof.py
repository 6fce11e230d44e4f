"""The judge of plans sees what is wrong with plans of sites."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from einturnip.cost.machine import Machine
from einturnip.memgraph.types import MemGraph
from einturnip.report.emit import emit_json
from einturnip.verify.types import NotAPlan, Rule
from tests.sites.test_split import spilling
from tests.verify.plans import Json, files_of, rules, verdict_of


def text_of(graph: MemGraph) -> str:
    """What ``einturnip plan --emit sites --format json`` prints of a memory graph."""
    budget, prediction = SimpleNamespace(memory=None, arena=graph.capacity), SimpleNamespace(to_json=dict)
    planned: Any = SimpleNamespace(memgraph=graph, machine=Machine(), budget=budget, prediction=prediction)
    return "".join(emit_json(planned, "sites", "case.ein", files_of(graph)))


@lru_cache
def text(name: str, devices: int, capacity: int) -> str:
    return text_of(spilling(name, 2, devices, capacity))


def plan() -> Json:
    found: Json = json.loads(text("chain", 3, 512))
    return found


@pytest.mark.parametrize("capacity", [256, 1 << 14])
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["product", "chain", "softmax"])
def test_plans_of_sites_are_valid(name: str, devices: int, capacity: int) -> None:
    found = json.loads(text(name, devices, capacity))
    verdict = verdict_of(found)
    assert verdict.valid, verdict.faults
    kinds = [op["kind"] for op in found["ops"]]
    assert kinds.count("send") == kinds.count("notice") == kinds.count("receive")
    assert (kinds.count("send") > 0) == (devices > 1)
    assert verdict.n_ops == len(kinds) - 2 * kinds.count("send")


def ends(found: Json, kind: str) -> list[Json]:
    return [op for op in found["ops"] if op["kind"] == kind]


def _drop_acknowledgement(found: Json) -> None:
    """Let the next writer of a value's bytes not wait for its send, if nothing else makes it wait."""
    sends = {op["id"] for op in ends(found, "send")}
    for op in found["ops"]:
        op["after"] = [i for i in op["after"] if i not in sends]


def _resize(found: Json) -> None:
    ends(found, "receive")[0]["writes"][0][2] -= 1


def _send_twice(found: Json) -> None:
    found["ops"].append(ends(found, "send")[0] | {"id": len(found["ops"])})


def _drop_send(found: Json) -> None:
    send = ends(found, "send")[0]
    found["ops"] = [
        op | {"after": [i for i in op["after"] if i != send["id"]]} for op in found["ops"] if op is not send
    ]


def _receive_early(found: Json) -> None:
    notices = {op["id"] for op in ends(found, "notice")}
    receive = ends(found, "receive")[-1]
    receive["after"] = [i for i in receive["after"] if i not in notices]


def _send_other_value(found: Json) -> None:
    sends = ends(found, "send")
    other = next(op for op in sends if op["reads"][0][3] != sends[0]["reads"][0][3])
    sends[0]["reads"] = other["reads"]


def _send_to_itself(found: Json) -> None:
    send = ends(found, "send")[0]
    receive = next(op for op in ends(found, "receive") if op["transfer"] == send["transfer"])
    receive["site"] = send["site"]
    receive["after"] = []


def _wait_for_other_site(found: Json) -> None:
    first, last = found["ops"][0], found["ops"][-1]
    assert first["site"] != last["site"]
    last["after"].append(first["id"])


def _use_other_memory(found: Json) -> None:
    load = ends(found, "load")[0]
    load["writes"][0][0] = f"cpu:{(load['site'] + 1) % 3}"


def _wait_for_notice(found: Json) -> None:
    notice = ends(found, "notice")[0]
    other = next(op for op in found["ops"] if op["site"] == notice["site"] and op["kind"] == "kernel")
    other["after"].append(notice["id"])


def _forget_receive(found: Json) -> None:
    receives = {op["id"] for op in ends(found, "receive")}
    for op in found["ops"]:
        op["after"] = [i for i in op["after"] if i not in receives]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_drop_acknowledgement, Rule.RACE),
        (_resize, Rule.WIRE),
        (_send_twice, Rule.WIRE),
        (_drop_send, Rule.WIRE),
        (_receive_early, Rule.WIRE),
        (_send_other_value, Rule.WIRE),
        (_send_to_itself, Rule.WIRE),
        (_wait_for_notice, Rule.WIRE),
        (_wait_for_other_site, Rule.LOCAL),
        (_use_other_memory, Rule.LOCAL),
        (_forget_receive, Rule.RACE),
    ],
)
def test_a_changed_plan_is_refused(change: Callable[[Json], None], rule: Rule) -> None:
    found = deepcopy(plan())
    change(found)
    assert rule in rules(found)


def test_each_dropped_dependency_of_a_transfer_that_matters_is_seen() -> None:
    """Dependencies are those that no others imply, so dropping any of them changes the plan's orders."""
    found = plan()
    sends = {op["id"] for op in ends(found, "send")}
    rng = np.random.default_rng(1)
    edges = [(i, j) for i, op in enumerate(found["ops"]) for j in op["after"] if j in sends]
    assert edges
    for i, j in (edges[k] for k in rng.permutation(len(edges))[:10]):
        changed = deepcopy(found)
        changed["ops"][i]["after"].remove(j)
        assert not verdict_of(changed).valid


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("site", None, r"ops\[0\].site: expected an integer, found None"),
        ("site", -1, r"ops\[0\].site: expected the number of a site"),
        ("kind", "posted", r"ops\[0\].kind: expected one of load, .*, receive"),
    ],
)
def test_fields_of_sites_are_checked(field: str, value: object, message: str) -> None:
    found = plan()
    found["ops"][0][field] = value
    with pytest.raises(NotAPlan, match=message):
        verdict_of(found)


def test_a_plan_of_one_memory_has_no_transfers() -> None:
    found = plan() | {"schema": "einturnip.memgraph/1"}
    with pytest.raises(NotAPlan, match=r"kind: expected one of load, .*, store, found '(send|notice|receive)'"):
        verdict_of(found)
