"""Stored plans are read back unchanged, found by equal requests only, and never in the way."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given, note, settings

import einturnip as et
from einturnip import caches
from einturnip.api import call_cache, plan_cache
from einturnip.caches import DamagedEntry
from einturnip.cli.main import run as command
from einturnip.core.errors import CapacityError
from einturnip.core.units import MIB
from einturnip.ir.dtypes import DType
from einturnip.memgraph.check import check
from einturnip.memgraph.types import MemGraph
from einturnip.planner import codec, plan_store, planner
from einturnip.runtime.scheduler.report import Prediction
from einturnip.testing import DrawnCase, assert_agrees, evaluate, programs
from tests.drawn import examples

TEXT = """\
input X : f64[n, m]
input scale : f64 = 2
M[i] = max[j] X[i,j]
Y[i,j] = (X[i,j] - M[i]) * scale
s[j] = sum[i] Y[i,j]
output Y, s
"""
STEPS = """\
input X : f64[b, n]
state W : f64[n] = 0
Y[i] = sum[n] X[i,n] * W[n]
loss = sum[i] (Y[i] - 1)^2
W[n] <- W[n] - 1 * grad(loss, W[n])
output loss
"""


class Disk:
    """A folder of plans, and how many were searched for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.searched = folder, 0

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*/*"))

    def anew(self) -> None:
        """As if a process began."""
        plan_cache.forget()
        call_cache._calls.clear()
        self.searched = 0


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setenv(plan_store.SWITCH, str(tmp_path / "plans"))
    monkeypatch.setattr(plan_store, "WORTH_STORING", 0.0)
    found, searched = Disk(tmp_path / "plans"), planner.Planner._search

    def counted(*arguments: Any) -> Any:
        found.searched += 1
        return searched(*arguments)

    monkeypatch.setattr(planner.Planner, "_search", counted)
    found.anew()
    return found


def X(n=6, m=7):
    return np.arange(float(n * m)).reshape(n, m)


def holds(result, X):
    Y = (X - X.max(axis=1, keepdims=True)) * 2
    return (result["Y"] == Y).all() and (result["s"] == Y.sum(axis=0)).all()


# --- what is written is read --------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(programs())
def test_a_plan_is_read_as_it_was_made(case: DrawnCase) -> None:
    note(case.text)
    program = et.compile(case.text, dims=case.dims)
    plan_cache.forget()
    plan = program.plan(workers=2, data=case.inputs)
    planned = plan._job.planned
    made = b"".join(plan_store.PLAN.to_bytes((planned.memgraph, planned.prediction)))
    memgraph, prediction = plan_store.PLAN.from_bytes(made)
    check(memgraph)
    assert prediction == planned.prediction and memgraph.taskgraph.decomposition == planned.decomposition
    assert b"".join(plan_store.PLAN.to_bytes((memgraph, prediction))) == made
    plan._job = replace(
        plan._job, planned=replace(planned, graph=memgraph.taskgraph.decomposition.graph, memgraph=memgraph)
    )
    plan._cached = replace(plan._cached, planned=plan._job.planned)
    for name, answer in evaluate(case.program, case.inputs, case.dims).items():
        assert_agrees(plan.run()[name], answer)


def test_every_class_that_a_plan_may_hold_is_known():
    """A field of a class that the format lacks would only show as plans that are never kept."""
    known = {DType, *codec.EXPRESSIONS, *codec.GRAPHS}
    left, seen = [MemGraph, Prediction], set()

    def classes(hint):
        return [hint] if is_dataclass(hint) else [c for part in get_args(hint) for c in classes(part)]

    while left:
        cls = left.pop()
        if cls not in seen:
            seen.add(cls)
            if cls is not DType:
                left += [c for hint in get_type_hints(cls).values() for c in classes(hint)]
    assert seen <= known
    assert known - seen <= {codec.ScalarConst}, "a class that no plan holds"


def test_other_classes_are_neither_written_nor_read():
    with pytest.raises(codec.NotEncodable):
        plan_store.PLAN.to_bytes((1, {1, 2}))
    for row in (["Path", "/"], ["__import__", "os"], ["Index"]):
        head = json.dumps({"arrays": [], "rows": [row], "root": {"o": 0}}).encode()
        with pytest.raises(DamagedEntry):
            plan_store.PLAN.from_bytes(len(head).to_bytes(8, "little") + head)


def test_numbers_that_json_lacks():
    value = (float("inf"), -0.0, 1 + 2j, True, 1, None, "\ud800"[:0] + "é", 10**30, {"a": (1, ())})
    back = plan_store.PLAN.from_bytes(b"".join(plan_store.PLAN.to_bytes(value)))
    assert repr(back) == repr(value)
    assert repr(plan_store.PLAN.from_bytes(b"".join(plan_store.PLAN.to_bytes(float("nan"))))) == "nan"
    with pytest.raises(codec.NotEncodable):
        plan_store.PLAN.to_bytes(10**5000)


# --- who finds it -------------------------------------------------------------------------------------------------


def test_programs_and_einsums_of_another_process_find_it(disk):
    for _ in range(3):
        disk.anew()
        assert holds(et.compile(TEXT)(X=X(), memory="200MiB"), X())
        assert (et.einsum("ij,kj->ik", X(), X(), memory="200MiB") == X() @ X().T).all()
    assert disk.searched == 0 and len(disk.files) == 2


def test_the_command_line_finds_it(disk, tmp_path, capsys):
    (tmp_path / "p.ein").write_text(TEXT)
    told = []
    for _ in range(2):
        disk.anew()
        assert (
            command(["run", str(tmp_path / "p.ein"), "--random", "--dim", "n=50", "--dim", "m=60", "--arena", "20KiB"])
            == 0
        )
        told.append(capsys.readouterr().out.splitlines()[0])
    assert disk.searched == 0 and told[0] == told[1]


def test_sessions_find_it(disk):
    rng, losses = np.random.default_rng(0), []
    feed = rng.integers(-1, 2, (3, 4)).astype(float)
    for _ in range(2):
        disk.anew()
        with et.compile(STEPS).session(X=feed, memory="200MiB") as session:
            losses.append([float(session.step()["loss"]) for _ in range(3)])
            losses.append(session.state("W").tolist())
    assert disk.searched == 0 and losses[:2] == losses[2:]


@pytest.mark.parametrize(
    "options", [{"reproducible": True}, {"device": "sim", "arena": "64KiB"}, {"arena": "8KiB"}], ids=str
)
def test_other_kinds_of_runs_find_it(disk, options):
    data = X(40, 30)
    for _ in range(2):
        disk.anew()
        assert holds(et.compile(TEXT)(X=data, **options), data)
    assert disk.searched == 0


@pytest.mark.parametrize(
    "other",
    [
        {"X": X(6, 8)},
        {"X": X(7, 6).T},
        {"workers": 1},
        {"policy": "fixed"},
        {"exact": False},
        {"reproducible": True},
        {"arena": "1MiB"},
        {"out": {"Y": np.zeros((6, 7))}},
        {"device": "sim"},
    ],
    ids=str,
)
def test_what_a_plan_depends_on_asks_for_a_new_one(disk, other):
    arguments = {"X": X(), "memory": "200MiB", "workers": 2}
    et.compile(TEXT)(**arguments)
    disk.anew()
    changed = arguments | other
    if "arena" in other:
        del changed["memory"]
    assert holds(et.compile(TEXT)(**changed), changed["X"])
    assert disk.searched == 1


def test_another_version_of_einturnip_makes_its_own(disk, monkeypatch):
    et.compile(TEXT)(X=X())
    monkeypatch.setattr(plan_store, "source_version", lambda *packages: (plan_store.FORMAT + 1,))
    disk.anew()
    et.compile(TEXT)(X=X())
    assert disk.searched == 1


# --- budgets ------------------------------------------------------------------------------------------------------


def test_a_plan_serves_budgets_that_it_fits_and_hardly_wastes():
    room = plan_store.PlanningBudget(1000 * MIB, False)
    tight = room.nbytes - 2 * MIB, int(room.nbytes * (1 + plan_store.MAX_UNUSED))
    for nbytes, serves in ((996, False), (998, True), (1000, True), (1060, True), (1070, False)):
        assert plan_store.PlanningBudget(nbytes * MIB, False).is_served_by(*tight) == serves
    stated = plan_store.PlanningBudget(1000, True)
    assert stated.is_served_by(1000, 1000) and not plan_store.PlanningBudget(1001, True).is_served_by(1000, 1000)


def test_a_plan_that_lacks_nothing_serves_larger_budgets_and_no_smaller_ones(disk, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no machine code is on disk, and 16 MiB do not suffice for it
    data, program = X(300, 200), et.compile(TEXT)
    for memory, searched in (("200MiB", 1), ("400MiB", 0), ("3GiB", 0), ("16MiB", 1)):
        disk.anew()
        assert holds(program(X=data, memory=memory), data)
        assert disk.searched == searched, memory


def slower(planned, times, **more):
    """The plan, with its predicted time multiplied by a factor."""
    seconds = planned.prediction.seconds * times
    return replace(planned, prediction=replace(planned.prediction, seconds=seconds, **more))


def test_more_memory_is_never_predicted_to_take_longer(disk, monkeypatch):
    """Budgets in any order: the stored plan of a larger budget is dropped once a smaller one has a better plan."""
    searched, times = planner.Planner._search, {}
    monkeypatch.setattr(planner.Planner, "_search", lambda p: slower(searched(p), times[p._request.options.arena]))
    program, data = et.compile(TEXT), X(300, 200)
    times |= {400 << 10: 3.0, 600 << 10: 50.0, 800 << 10: 9.0}
    for arena in (600 << 10, 400 << 10, 800 << 10, 600 << 10, 800 << 10, 400 << 10):
        disk.anew()
        plan = program.plan(X=data, arena=arena)
        planned = plan._job.planned
        assert planned.memgraph.device_nbytes <= arena == planned.budget.arena
        assert holds(plan.run(), data)
    told = []
    for arena in (400 << 10, 600 << 10, 800 << 10):
        disk.anew()
        told.append(program.plan(X=data, arena=arena).prediction.seconds)
        assert disk.searched == 0
    assert told[0] >= told[1] >= told[2]


def test_a_plan_for_less_memory_is_not_taken_for_a_reproducible_run(disk, monkeypatch):
    searched = planner.Planner._search
    monkeypatch.setattr(planner.Planner, "_search", lambda p: slower(searched(p), p._request.options.arena))
    program, data = et.compile(TEXT), X(300, 200)
    told = [program.plan(X=data, arena=n << 10, reproducible=True).prediction.seconds for n in (2000, 4000)]
    assert told[1] > told[0]


def test_no_plan_is_used_that_passes_its_budget(disk):
    program, data = et.compile(TEXT), X(500, 400)
    for memory in range(60, 20, -1):
        disk.anew()
        try:
            plan = program.plan(X=data, memory=f"{memory}MiB")
        except CapacityError:
            break
        memgraph = plan._job.planned.memgraph
        assert memgraph.capacity <= (memory << 20) - sum(a.nbytes for a in (data, data[0]))
    assert disk.files


# --- what may be wrong with it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "other", "folder", "text"])
def test_damage_is_passed_over_and_mended(disk, harm):
    et.compile(TEXT)(X=X(), memory="200MiB")
    et.einsum("ij,kj->ik", X(), X(), memory="200MiB")
    whole = {file: file.read_bytes() for file in disk.files}
    for file, held in whole.items():
        file.unlink()
        if harm == "folder":
            file.mkdir()
            continue
        flipped = bytes([*held[:-9], held[-9] ^ 1, *held[-8:]])
        other = next(h for f, h in whole.items() if f != file)
        file.write_bytes({"cut": held[:-9], "flip": flipped, "empty": b"", "other": other, "text": b"{}" * 99}[harm])
    disk.anew()
    assert holds(et.compile(TEXT)(X=X(), memory="200MiB"), X())
    assert (et.einsum("ij,kj->ik", X(), X(), memory="200MiB") == X() @ X().T).all()
    assert disk.searched == 2
    if harm != "folder":
        disk.anew()
        assert holds(et.compile(TEXT)(X=X(), memory="200MiB"), X())
        assert disk.searched == 0


def test_where_nothing_can_be_written_nothing_is_kept(disk, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(plan_store.SWITCH, str(tmp_path / "file"))
    assert holds(et.compile(TEXT)(X=X()), X())
    monkeypatch.setenv(plan_store.SWITCH, str(disk.folder))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    disk.anew()
    assert holds(et.compile(TEXT)(X=X()), X())
    assert disk.files == []


def test_it_can_be_switched_off_and_is_the_users_alone(disk, monkeypatch):
    et.compile(TEXT)(X=X())
    (file,) = disk.files
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv(plan_store.SWITCH, "off")
    disk.anew()
    et.compile(TEXT)(X=X())
    assert disk.searched == 1 and disk.files == [file]


def test_the_folder_lies_beside_the_other_caches(monkeypatch, tmp_path):
    monkeypatch.delenv(plan_store.SWITCH)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caches.PLANS.path() == str(tmp_path / "einturnip" / "plans")


def test_those_used_longest_ago_are_given_up(disk, monkeypatch):
    et.compile(TEXT)(X=X(6, 7), memory="200MiB")
    (first,) = disk.files
    most = 3 * first.stat().st_size + 1000
    monkeypatch.setattr(caches, "_PRUNED_EVERY", 1)
    monkeypatch.setattr(plan_store, "PLANS", replace(caches.PLANS, max_nbytes=most))
    for m in range(8, 16):
        disk.anew()
        os.utime(first)
        et.compile(TEXT)(X=X(6, m), memory="200MiB")
        for at, file in enumerate(disk.files):
            if file != first:
                os.utime(file, (at, at))
    assert sum(file.stat().st_size for file in disk.files) <= most and first in disk.files
    assert len(list(disk.folder.iterdir())) == len(disk.files)


def test_what_takes_longer_to_read_than_to_make_is_not_kept(disk, monkeypatch):
    monkeypatch.setattr(plan_store, "WORTH_STORING", 1e9)
    et.compile(TEXT)(X=X())
    assert disk.files == []


def test_threads_write_and_read_at_once(disk):
    wrong = []

    def work(seed):
        for _ in range(6):
            try:
                assert holds(et.compile(TEXT)(X=X(), memory="200MiB"), X())
            except Exception as error:
                wrong.append((seed, error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(disk.files) >= 1
    assert all(file.suffix == ".plan" for file in disk.files)
