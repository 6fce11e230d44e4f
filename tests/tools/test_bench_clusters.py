"""``docs/benchmarks/clusters.py`` on tiny stores: contenders agree, its page and its bars are written."""

from __future__ import annotations

import json
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from harness import cluster_bench
from harness.cluster_bench import MEMORY, ClusterOutcome, ClusterTrial
from harness.cluster_cases import on_workers, prepare
from harness.cluster_page import bars, page
from harness.cluster_peers import OURS, group_sums

SCRIPT = Path(__file__).parents[2] / "docs/benchmarks/clusters.py"
needs_dask = pytest.mark.skipif(not (find_spec("distributed") and find_spec("zarr")), reason="needs the extra dev")


@needs_dask
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", [case.name for case in on_workers(small=True)])
def test_the_script_writes_a_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_bench, "present", lambda: [OURS, "dask.array"])
    words = ["--small", "--rounds", "1", "--folder", str(tmp_path / "data"), "--out", str(tmp_path), name]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    (case,) = json.loads((tmp_path / "clusters.json").read_text())["cases"]
    assert [(run["contender"], run["error"], run["agrees"]) for run in case["runs"]] == [
        (OURS, "", True),
        ("dask.array", "", True),
    ]
    assert all(run["seconds"] > 0 and 0 < run["peak"] < MEMORY and run["between"] > 0 for run in case["runs"])
    text = (tmp_path / "clusters.md").read_text()
    assert f"## {name}" in text and "| finishes within the memory of each worker |" in text
    assert not (tmp_path / "data/scratch").exists()


@needs_dask
def test_sums_by_key_of_one_block(tmp_path: Path) -> None:
    import zarr

    case = next(case for case in on_workers(small=True) if case.kind == "group-by")
    stores = prepare(case, tmp_path)
    key, x = (np.asarray(zarr.open_array(stores[name], mode="r")[...]) for name in ("key", "X"))
    expected = np.zeros(case.result.shape)
    np.add.at(expected, key, x)
    np.testing.assert_allclose(group_sums(key[:, None], x)[0], expected, atol=1e-5)


def _run(name: str, seconds: float, between: int, error: str = "", peak: int = MEMORY) -> ClusterTrial:
    return ClusterTrial(name, "1", seconds, between, peak, agrees=True, error=error)


def _met(*trials: ClusterTrial) -> list[bool]:
    return [met for _, _, met in bars(ClusterOutcome(on_workers(True)[0], [*trials]).medians())]


def test_bars_are_met_or_not() -> None:
    dask, cubed = _run("dask.array", 10, 100), _run("Cubed", 20, 0)
    assert _met(_run(OURS, 10, 50), dask, cubed) == [True, True, True, True]
    assert _met(_run(OURS, 10.1, 51, peak=MEMORY + 1), dask, cubed) == [False, False, False, True]
    # The median of the rounds counts, and one that fails counts as failing.
    assert _met(*(_run(OURS, s, 50) for s in (30, 9, 9)), dask) == [True, True, True]
    assert _met(_run(OURS, 10, 50), dask, _run("dask.array", 1, 0, "died")) == [True, True]
    assert _met(_run(OURS, 10, 50), _run(OURS, 10, 0, "timed out"), dask) == [False, False]


def test_a_failure_is_a_row_of_the_page() -> None:
    about = {"date": "", "processor": "", "cores": 2, "python": "", "numpy": "", "disturbed": 0.25}
    outcome = ClusterOutcome(on_workers(True)[0], [_run(OURS, 1, 50), _run("Cubed", 0, 0, "ValueError: a|b")])
    text = page([outcome], about, "command")
    assert "| Cubed 1 | 1 | ValueError: a b |" in text and "Other programs took 25% of the CPU time" in text
