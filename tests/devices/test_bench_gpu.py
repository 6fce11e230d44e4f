"""``einturnip bench gpu`` where there is no GPU: every part on the simulated device, what is kept, the peers' sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.devices.kind import choose
from einturnip.kernels.cuda.nvrtc import nvrtc
from harness import gpu, gpu_ceilings, gpu_page
from harness.gpu_cases import gpu_cases
from harness.gpu_peers import Streamed, _layers, layer

from .fake_cuda import FakeCalls


def bench(out: Path, parts: str = "abcde", seconds: float = 600.0) -> list[str]:
    return list(gpu.run(out, "sim", choose("sim"), parts, seconds, True))


def test_every_part_runs_and_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [case for k, case in enumerate(gpu_cases(True)) if case.part in "cd" or k % 13 == 0]
    assert {case.part for case in some} == set("abcd")
    monkeypatch.setattr(gpu, "gpu_cases", lambda tiny: some)
    monkeypatch.setattr(gpu, "peers", lambda *given: {})
    monkeypatch.setattr(gpu, "ROUNDS", 2)
    lines = bench(tmp_path)
    kept = json.loads((tmp_path / "gpu.json").read_text())
    n = len(some) + sum(case.part in "cd" for case in some)
    assert len(kept["cases"]) == n == len(lines) - 1
    assert not any(result["failed"] for result in kept["cases"].values())
    assert kept["machine"]["gpu"] == "simulated" and "numpy" in kept["machine"]["versions"]
    assert (tmp_path / "gpu.md").read_text().count("\n| ") == 1 + sum(len(r["seconds"]) for r in kept["cases"].values())
    assert len(bench(tmp_path)) == 1
    (tmp_path / "gpu.json").unlink()
    assert sum("no time left" in line for line in bench(tmp_path, "a", -1.0)) == sum(c.part == "a" for c in some)


@pytest.mark.slow
def test_every_case_runs(tmp_path: Path) -> None:
    bench(tmp_path)
    kept = json.loads((tmp_path / "gpu.json").read_text())["cases"]
    assert len(kept) == len(gpu_cases(True)) + 3
    assert not any(result["failed"] for result in kept.values())


def test_names_differ_and_full_sizes_compile() -> None:
    for tiny in (True, False):
        cases = gpu_cases(tiny)
        assert len({case.name for case in cases}) == len(cases)
    prefill = next(case for case in gpu_cases(False) if case.part == "c")
    weights = sum(2 * int(np.prod(s)) for name, s in prefill.case.shapes.items() if name != "X")
    assert 12.5e9 < weights < 13.5e9  # a LLaMA-7B's without its table of words
    et.compile(prefill.case.program)


def test_ceilings_on_the_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Any = FakeCalls(lambda seconds: 1e-3)
    calls.launch = lambda function, grid, block, shared, head, fixed, stream: calls.streams.submit(
        stream, lambda: None, 1e-3
    )
    calls.function = lambda module, entry: entry
    found = gpu_ceilings.ceilings(calls, nbytes=1 << 16, n=64, grid=2)
    assert found["copy"] == pytest.approx(2 * (1 << 16) / 1e-3) and found["cuBLAS f16"] == pytest.approx(
        2 * 64**3 / 1e-3
    )
    assert set(found) == {"copy", "host to device", "device to host", "multiply-adds f32"} | {
        f"cuBLAS {dtype}" for dtype in ("f32", "f16", "bf16")
    }
    for arch in ("sm_75", "sm_80", "sm_90"):
        assert nvrtc().compile(gpu_ceilings.FMA, arch)[:4] == b"\x7fELF"


def test_the_bound_is_the_longer_of_computing_and_moving() -> None:
    limits = {"cuBLAS f16": 100.0, "host to device": 10.0, "device to host": 5.0}
    result = {"flops": 200.0, "ceiling": "cuBLAS f16"}
    links = {"cpu:0->cuda:0": 10, "cuda:0->cpu:0": 20, "disk->cpu:0": 10**9}
    assert gpu_page.bound_seconds(result, {"link_bytes": links}, limits) == 4.0
    assert gpu_page.bound_seconds(result, {"link_bytes": {}}, limits) == 2.0


def test_the_prefill_is_what_pytorch_computes() -> None:
    torch = pytest.importorskip("torch")
    case = next(case for case in gpu_cases(True) if case.part == "c")
    data = gpu.inputs(case)
    (ours,) = dict(et.compile(case.case.program)(data=data)).values()
    x, layers = _layers(torch, case, data)
    for weights in layers:
        x = layer(torch, x, weights)
    np.testing.assert_allclose(ours.astype(np.float32), x.float().numpy(), atol=2e-3)
    streamed = Streamed(torch, case, data, "cpu")
    for _ in range(2):
        np.testing.assert_array_equal(streamed.work().float().numpy(), x.float().numpy())
