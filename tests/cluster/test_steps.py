"""``run --at --steps``: states on workers, checkpoints that any number of workers resumes; traces of all sites."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from distributed import futures_of
from distributed.worker_state_machine import RemoveReplicasEvent

import einturnip as et
from einturnip.api.session import Session
from einturnip.cli.main import run as command
from einturnip.cluster.at import named_cluster
from einturnip.cluster.cluster_run import ClusterRun
from einturnip.core import phases
from einturnip.sites.wires.dask_cluster import cluster_at
from einturnip.storage import slice as slices
from tests.cluster.test_runs import CHAIN, on
from tests.state.test_steps import TRAIN

pytestmark = pytest.mark.timeout(120)
FEED = ("train.ein", "--feed", "X=x.npy", "--checkpoint", "ck")


def by_hand(x: Any, steps: int) -> Any:
    w, m = np.zeros(5), np.full(5, 0.5)
    for k in range(steps):
        w, m = w - 0.125 * m, m * 0.75 + x[k % len(x)].sum(0)
    return w


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    with cluster_at("local:2", False) as client:
        yield client


@pytest.fixture
def run(two: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)
    Path("train.ein").write_text(TRAIN)
    np.save("x.npy", np.random.default_rng(1).integers(-4, 5, (7, 3, 5)).astype(float))

    def call(*arguments: str, code: int = 0) -> str:
        ended = command(["run", *arguments, "--at", two.scheduler.address])
        shown = capsys.readouterr()
        assert ended == code, shown.err
        return str(shown.out + shown.err)

    return call


def test_any_number_of_workers_resumes_a_checkpoint(run: Callable[..., str]) -> None:
    with on(1):
        shown = run(*FEED, "--steps", "3", "--every", "2")
    assert "step 3/3  c " in shown and sorted(os.listdir("ck")) == ["step-000000002", "step-000000003"]
    shown = run(*FEED, "--steps", "6", "-o", "W=w.npy")
    assert shown.startswith("resuming after step 3 of ck\n") and "W        f64[5]  written to w.npy" in shown
    np.testing.assert_allclose(np.load("w.npy"), by_hand(np.load("x.npy"), 6), rtol=1e-12)
    assert command(["run", *FEED, "--steps", "7", "-o", "W=w.npy"]) == 0  # without workers
    np.testing.assert_allclose(np.load("w.npy"), by_hand(np.load("x.npy"), 7), rtol=1e-12)


@pytest.mark.slow
def test_workers_read_their_tiles_of_a_large_slice(run: Callable[..., str]) -> None:
    places, results = [], ClusterRun.results

    def noted(attempt: ClusterRun, *arguments: Any) -> Any:
        places.append(attempt.settings["inputs"]["X"][:2])
        return results(attempt, *arguments)

    with mock.patch.object(slices, "MAX_ARRAY_NBYTES", 0), mock.patch.object(ClusterRun, "results", noted):
        run(*FEED, "--steps", "3", "-o", "W=w.npy")
    assert places == [("slice", ((0, step),)) for step in range(3)]
    np.testing.assert_allclose(np.load("w.npy"), by_hand(np.load("x.npy"), 3), rtol=1e-12)


@pytest.mark.slow
def test_steps_lost_with_a_worker_are_run_again_from_the_checkpoint(run: Callable[..., str], two: Any) -> None:
    step, killed = Session.step, list[str]()

    def killing(session: Session, **given: Any) -> Any:
        if session.steps == 3 and not killed:
            futures = futures_of(session.source("W").array)  # type: ignore[attr-defined]
            killed.append(next(iter(two.who_has(futures).values()))[0])
            os.kill(two.run(os.getpid)[killed[0]], signal.SIGKILL)
        return step(session, **given)

    with mock.patch.object(Session, "step", killing):
        shown = run(*FEED, "--steps", "5", "--every", "2", "--retries", "1", "-o", "W=w.npy")
    (warning,) = [line for line in shown.splitlines() if line.startswith("warning: ")]
    assert killed[0] in warning and "resuming after step 2 of ck" in shown
    np.testing.assert_allclose(np.load("w.npy"), by_hand(np.load("x.npy"), 5), rtol=1e-12)
    two.wait_for_workers(2, timeout=60)  # for the tests that follow


@pytest.mark.slow
def test_a_state_that_dask_has_moved_is_read_where_it_is(two: Any) -> None:
    with et.compile(TRAIN).session(client=two) as session:
        x = np.ones((3, 5))
        session.step(X=x)
        (future, *_) = futures_of(session.source("M").array)  # type: ignore[attr-defined]
        (old,) = two.who_has([future])[future.key]
        (other,) = {*two.run(os.getpid)} - {old}
        two.replicate([future], workers=[other])

        def forget(key: Any, dask_worker: Any) -> None:
            dask_worker.handle_stimulus(RemoveReplicasEvent(keys=[key], stimulus_id="test"))

        two.run(forget, future.key, workers=[old])
        while two.who_has([future])[future.key] != (other,):
            assert future.status == "finished"
        session.step(X=x)
        np.testing.assert_array_equal(session.state("M"), (0.5 * 0.75 + 3) * 0.75 + 3 + np.zeros(5))


def test_a_trace_has_a_row_for_each_worker(run: Callable[..., str], capsys: Any) -> None:
    Path("chain.ein").write_text(CHAIN)
    sizes = [word for label in "nkml" for word in ("--dim", f"{label}=400")]
    shown = run(
        "chain.ein", "--random", *sizes, "--arena", "2MiB", "--trace", "t.json", "--report", "r.json", "--analyze"
    )
    assert "line  statement" in shown and "site 1   tcp://" in shown
    assert command(["trace", "t.json"]) == 0
    rows = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert {"kernels 0", "kernels 1", "reading 0", "reading 1"} <= {row.strip() for row in rows}
    assert [site["site"] for site in json.loads(Path("r.json").read_text())["sites"]] == [0, 1]


@pytest.mark.slow
def test_one_progress_counts_the_ops_of_all_sites(two: Any) -> None:
    data = {name: np.ones((400, 400)) for name in "ABE"}
    found = list[Any]()
    et.compile(CHAIN)(data=data, client=two, arena="2MiB", progress=found.append)
    assert len({(p.total_ops, p.total_flops, p.total_nbytes) for p in found}) == 1
    assert found[0].total_flops >= 2 * 2 * 400**3
    assert any(statement in p.statement for p in found for statement in ("= D[i,k] * E[k,j]", "D[i,j]"))
    assert all(a.done_ops <= b.done_ops <= b.total_ops for a, b in zip(found, found[1:], strict=False))


def test_waiting_for_the_workers_is_shown(two: Any) -> None:
    seen = mock.Mock()
    with phases.listening(seen), named_cluster(two.scheduler.address, False):
        pass
    assert [call.args for call in seen.enter.call_args_list] == [
        ("starting or finding the workers",),
        ("reading",),
        ("leaving the workers",),
    ]
