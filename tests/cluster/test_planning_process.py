"""Plans that a process of its own makes: those of this process, its errors, and a client whose memory stays flat."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any
from unittest import mock

import numpy as np
import pytest

import einturnip as et
from einturnip.cluster import planning_process
from einturnip.cluster.cluster_run import batches
from einturnip.cluster.planning import PARTS, SitesPlan, WorkersRequest, plan_on
from einturnip.cluster.planning_process import plan_apart
from einturnip.cluster.tensors import planned_inputs
from einturnip.cluster.workers import Worker
from einturnip.compiler import bind
from einturnip.core import phases
from einturnip.core.errors import BindError, CapacityError, InternalError, Interrupted, RunError
from einturnip.cost.site_rates import MachineLink
from einturnip.eingraph.types import InputNode
from einturnip.planner.request import Options
from einturnip.storage.generated import RandomSource

pytestmark = pytest.mark.timeout(120)
TEXT = "input A : f64[n,k], B : f64[k,m]\nC[i,j] = A[i,k] * B[k,j]\noutput C\n"
WORKERS = tuple(Worker(f"tcp://10.0.0.7:{k}", "h", k, 60 << 20, 8 << 30) for k in range(2))


@pytest.fixture
def children() -> Iterator[list[Popen[bytes]]]:
    """Let processes of their own make all plans, and return these processes."""
    started = list[Any]()

    def noted(command: Any, **options: Any) -> Any:
        started.append(Popen(command, **options))
        return started[-1]

    always = mock.patch.object(planning_process, "MAX_TENSORS_PLANNED_HERE", 0)
    with always, mock.patch.object(planning_process.subprocess, "Popen", noted):
        yield started


def request(**options: Any) -> WorkersRequest:
    """Return the request for a plan of a product."""
    graph = bind(et.compile(TEXT)._program, {}, dict.fromkeys("nkm", 300))
    sources = {n.name: RandomSource(n.name, n.shape, n.dtype, 0) for n in graph.nodes if isinstance(n, InputNode)}
    found = Options(**{"arena": 256 << 10, "link": MachineLink(1e9, 5e-4)} | options)
    return WorkersRequest(WORKERS, graph, planned_inputs(sources), {"C": "C.zarr"}, found)


def test_the_plan_is_that_of_this_process(children: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINTURNIP_PLANS", "off")
    unlike = replace(request(memory=100 << 20, arena=None, extra=(30 << 20, 0)), kept=("C",), targets={})
    for asked in (request(), replace(request(), finished={"C": (((0, 150), (0, 300)),)}), unlike):
        here, apart = plan_on(asked), plan_apart(asked)
        assert PARTS.digest(apart.parts) == PARTS.digest(here.parts)
        assert apart.planned.prediction == here.planned.prediction
        plain = ("workers", "memories", "kept", "extra", "read_again", "output_chunks", "periods")
        assert [getattr(apart, name) for name in plain] == [getattr(here, name) for name in plain]
        assert apart.pages is not None and here.pages is None
    assert [child.poll() is not None for child in children] == [True, True, True]


def test_a_small_plan_needs_no_process() -> None:
    with mock.patch.object(planning_process.subprocess, "Popen", side_effect=AssertionError):
        assert isinstance(plan_apart(request()), SitesPlan)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_run_of_such_a_plan(children: list[Any], own: Any, tmp_path: Path, retries: int) -> None:
    a = np.random.default_rng(0).integers(-4, 5, (300, 300)).astype(float)
    victims = [*own.run(os.getpid).values()][: 1 if retries else 0]

    def progress(found: Any) -> None:
        while victims:
            os.kill(victims.pop(), signal.SIGKILL)

    out = {"C": "dask"} if not retries else {"C": str(tmp_path / "C.zarr")}
    given = {"client": own, "arena": "256KiB", "out": out, "retries": retries, "progress": progress}
    result = et.compile(TEXT)(A=a, B=a, **given)
    np.testing.assert_array_equal(np.asarray(result["C"]), a @ a)
    assert len(children) == 1 + len(result.report.retries)
    for site in result.report.sites:
        assert site.received_nbytes == site.planned_nbytes
    assert 2 in {row.line for row in result.analyze().rows}


def test_errors_of_planning_are_those_of_this_process(children: list[Any]) -> None:
    for asked in (request(arena=1), request(arena=None, memory=64 << 20), request(extra=(0, 1, 2))):
        found = list[Any]()
        for plan in (plan_on, plan_apart):
            with pytest.raises((CapacityError, BindError)) as refused:
                plan(asked)
            found.append((type(refused.value), str(refused.value), getattr(refused.value, "needed", None)))
        assert found[0] == found[1]
    assert len(children) == 3


def test_a_bug_in_planning_is_reported_with_its_place(children: list[Any]) -> None:
    with pytest.raises(InternalError, match="planning failed:\nTraceback(.|\n)*in plan_on(.|\n)*KeyError"):
        plan_apart(replace(request(), inputs={}))


def test_phases_of_planning_are_shown(children: list[Any]) -> None:
    seen = mock.Mock()
    with phases.listening(seen):
        plan_apart(request())
    assert mock.call("planning") in seen.enter.call_args_list
    assert seen.tried.call_args.args[0] > 0


@pytest.mark.parametrize("by", ["event", "ctrl-c"])
def test_planning_is_interrupted(children: list[Any], by: str) -> None:
    stop, seen = threading.Event(), mock.Mock()
    seen.enter.side_effect = (lambda phase: stop.set()) if by == "event" else KeyboardInterrupt
    with phases.listening(seen), pytest.raises(Interrupted if by == "event" else KeyboardInterrupt):
        plan_apart(request(), stop=stop)
    (child,) = children
    assert child.returncode is not None


def test_the_process_that_plans_is_killed(children: list[Any]) -> None:
    seen = mock.Mock()
    seen.enter.side_effect = lambda phase: children[0].kill()
    with phases.listening(seen), pytest.raises(RunError, match=r"was ended by signal 9. Nothing .* out of memory"):
        plan_apart(request())


def test_the_process_that_plans_ends_with_the_one_that_started_it(children: list[Any]) -> None:
    seen = mock.Mock()

    def closed(phase: str) -> None:  # as the system does when the process is killed
        children[0].stdin.close()
        raise KeyboardInterrupt

    kill = mock.patch.object(Popen, "kill", lambda child: child.wait(timeout=60))
    seen.enter.side_effect = closed
    with kill, phases.listening(seen), pytest.raises(KeyboardInterrupt):
        plan_apart(request())
    assert children[0].returncode == 1


def test_batches_have_all_bytes_in_order() -> None:
    pieces = [b"", b"abc", b"d" * 10, memoryview(b"efgh")]
    found = [*batches(pieces, 4)]
    assert b"".join(p for batch in found for p in batch) == b"".join(pieces)
    assert [sum(map(len, batch)) for batch in found] == [4, 4, 4, 4, 1]


CLIENT = """
import sys
from einturnip.cli.main import run
code = run(sys.argv[1:])
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print("peak", line.split()[1])
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_memory_of_the_client_does_not_depend_on_the_size_of_the_plan(own: Any, tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(TEXT)
    peaks = []
    for n, tasks in ((400, 1), (1000, 30_000)):
        sizes = [word for label in "nkm" for word in ("--dim", f"{label}={n}")]
        command = [sys.executable, "-c", CLIENT, "run", "p.ein", "--random", *sizes, "--at", own.scheduler.address]
        done = subprocess.run(
            [*command, "--arena", "128KiB"], cwd=tmp_path, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, done.stderr
        (calls,) = [line for line in done.stdout.splitlines() if " kernel calls" in line]
        assert int(calls.partition(" kernel calls")[0].split()[-1].replace(",", "")) >= tasks
        peaks.append(int(done.stdout.split()[-1]) << 10)
    # Pages of the file with the plan, which the system can drop, take most of the difference.
    assert peaks[1] - peaks[0] < 32 << 20
