"""When kernels are compiled to machine code: once it saves time over several runs; at once if it is on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import einturnip as et
from einturnip.api import plan_cache
from einturnip.kernels import select
from einturnip.kernels.fused.region_kernel import RegionKernel
from einturnip.kernels.llvm import code_cache
from einturnip.planner import plan_store
from einturnip.runtime.host import compilation, prepared_run
from einturnip.runtime.host.prepared_run import _kernel as kernel_of

pytestmark = pytest.mark.machine_code

TEXT = "input X : f64[n, m]\nZ[n,m] = exp(X[n,m]) * 3\noutput Z\n"


def forget() -> None:
    """As if the process had just begun."""
    code_cache.forget()
    select.forget()
    compilation._missed.clear()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    yield
    forget()


def objects(folder: Path) -> int:
    """Kernels on disk."""
    return len(list(folder.glob("einturnip/kernels/*.o")))


def test_runs_add_up_until_compiling_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, x = et.compile(TEXT), np.zeros((600, 600))
    monkeypatch.setattr(compilation, "WORTH_LOADING", 0.0)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "START_SECONDS", float("inf"))
    program(X=x, workers=1)
    (saved,) = compilation._missed.values()
    assert saved > 0 and not objects(tmp_path)
    monkeypatch.setattr(compilation, "START_SECONDS", 5 * saved)  # a run counts twice
    program(X=x, workers=1)
    assert not objects(tmp_path)
    program(X=x, workers=1)
    assert objects(tmp_path) == 1 and not compilation._missed and code_cache.ready()


def test_what_is_on_disk_is_loaded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, x = et.compile(TEXT), np.zeros((600, 600))
    monkeypatch.setattr(compilation, "START_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "WORTH_LOADING", 0.0)
    program(X=x, workers=1)
    assert objects(tmp_path) == 1
    forget()
    monkeypatch.setattr(compilation, "START_SECONDS", float("inf"))
    program(X=x)
    assert code_cache.ready()
    forget()
    monkeypatch.setattr(compilation, "WORTH_LOADING", float("inf"))
    program(X=x)
    assert not code_cache.ready()


def test_little_memory_uses_code_on_disk_and_never_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored plan whose code is on disk is used where the compiler has no room; other plans are made for NumPy."""
    monkeypatch.setenv(plan_store.SWITCH, str(tmp_path / "plans"))
    monkeypatch.setattr(plan_store, "WORTH_STORING", 0.0)
    x = np.zeros((600, 600))
    for name in ("START_SECONDS", "COMPILE_SECONDS", "WORTH_LOADING"):
        monkeypatch.setattr(compilation, name, 0.0)
    et.compile(TEXT).plan(X=x, memory="1GiB", workers=1).run()
    assert objects(tmp_path) == 1
    forget()
    plan_cache.forget()
    monkeypatch.setattr(code_cache, "COMPILER_NBYTES", 1 << 60)
    compiled = []
    for text in (TEXT, TEXT.replace("exp", "tanh")):
        plan = et.compile(text).plan(X=x, memory="1GiB", workers=1)
        compiled.append(plan._job.planned.machine.compiled)  # type: ignore[union-attr]
        plan.run()
        assert code_cache.ready() and objects(tmp_path) == 1
    assert compiled == [True, False]


def test_kernels_that_are_there_already_keep_those_made_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    program, x = et.compile(TEXT), np.zeros((600, 600))
    monkeypatch.setattr(compilation, "START_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "WORTH_LOADING", 0.0)
    program(X=x, arena="16MiB")
    made = select._cached_kernel.cache_info().misses
    program(X=x, arena="16MiB")
    assert select._cached_kernel.cache_info().misses == made


def test_a_region_runs_by_all_of_its_code_once_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Causal attention after attention, whose code is part of its own: runs made ready meanwhile are made anew."""
    monkeypatch.setattr(compilation, "START_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(compilation, "WORTH_LOADING", 0.0)
    text = (
        "import std.nn\ninput Q : f32[h,s,d], K : f32[h,t,d], V : f32[h,t,d]\n"
        "Z[h,s,d] = {}(Q[h,s,d], K[h,t,d], V[h,t,d])\noutput Z\n"
    )
    given = {x: np.random.default_rng(0).standard_normal((8, 256, 64), np.float32) for x in "QKV"}
    full, causal = (et.compile(text.format(kind)) for kind in ("attention", "causal_attention"))
    full(data=given)
    monkeypatch.setattr(compilation, "START_SECONDS", float("inf"))
    for _ in range(3):
        causal(data=given)
    monkeypatch.setattr(compilation, "START_SECONDS", 0.0)
    made = []
    monkeypatch.setattr(prepared_run, "_kernel", lambda *call: made.append(kernel_of(*call)) or made[-1])
    for _ in range(2):
        causal(data=given)
    assert made and all(isinstance(kernel, RegionKernel) and kernel.spec.native for kernel in made)


def test_runs_to_come_repay_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "WORTH_LOADING", 0.0)
    planned = et.compile(TEXT).plan(X=np.zeros((600, 600)))._job.planned  # type: ignore[union-attr]
    tasks, machine = planned.taskgraph, planned.machine
    assert compilation.left_to_numpy(tasks, machine, None)
    assert not compilation.left_to_numpy(tasks, machine, None, runs=10**6)


def test_the_body_of_a_loop_is_priced_by_all_of_its_iterations() -> None:
    text = "input x : f64[n]\nfor t in 0 .. {} {{\n  x[i] = exp(-x[i]) * x[i]\n}}\noutput x"
    runs = [
        [step.planned.machine.runs for _, step in et.compile(text.format(n)).plan(x=np.zeros(8))._job.plans]  # type: ignore[union-attr]
        for n in (1000, 5000)
    ]
    assert [max(of) for of in runs] == [512, 4096]
