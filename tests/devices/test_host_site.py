"""The CPU as a site next to devices: its name, rates, memory, order, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import einturnip as et
from einturnip.cli.main import cli
from einturnip.cost.described_machines import product_flops
from einturnip.cost.machine import Machine
from einturnip.devices import kind as kinds
from einturnip.devices import open_sites
from einturnip.devices.cuda import kind
from einturnip.devices.cuda.kind import CUDA
from einturnip.devices.cuda.probe import FoundGpus, GpuInfo
from einturnip.devices.host_site import HostSite
from einturnip.devices.kind import DeviceChoice
from einturnip.report.sites import site_traffic
from einturnip.runtime.stream.host_border import released_at_end, running_devices

from .conftest import put
from .test_registered_kind import installed  # noqa: F401  (a fixture)

TEXT = "input A : f32[i,k], B : f32[k,j]\nC[i,j] = A[i,k] * B[k,j]\nD[i,j] = C[i,k] * B[k,j]\noutput D\n"
A, B = (np.random.default_rng(n).integers(-3, 4, (48, 48)).astype(np.float32) for n in (0, 1))
DATA = {"A": A, "B": B}
GPUS = FoundGpus((GpuInfo(0, "NVIDIA H200", 90, 1 << 37), GpuInfo(1, "NVIDIA T4", 75, 1 << 34)), driver=13000)


def test_words() -> None:
    one, several = kinds.choose("sim+cpu"), kinds.choose("sim:7,8+cpu")
    assert one.names == ("sim:0", "cpu") and one.count == 2 and one.name == "sim:0+cpu"
    assert several.names == ("sim:0", "sim:1", "cpu") and several.numbers == (7, 8) and several.count == 3
    assert DeviceChoice(CUDA, 1, option="tf32", host=True).name == "cuda:1+cpu"
    assert not kinds.is_on_host("sim+cpu") and not kinds.is_on_host("cuda:0+tf32+cpu")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("cpu+cpu", "the CPU is one site. help: cpu, or cuda:0[+]cpu"),
        ("sim+cpu+cpu", "the CPU is one site"),
        ("+cpu", "[+]cpu follows the devices that the CPU joins. help: cuda:0[+]cpu, or cpu"),
        ("auto+cpu", "[+]cpu follows the devices that the CPU joins"),
        (
            "sim:1,sim",
            "of one kind, and their numbers follow it once. help: sim:0,1 .* sim:0[+]cpu for one and the CPU",
        ),
        ("cpu+sim", "of one kind, .* help: cuda:0,1 for two devices, cuda:0[+]cpu"),
        ("sim+tf32+cpu", "'sim[+]tf32' is not a device"),
    ],
)
def test_wrong_words_are_refused(word: str, message: str) -> None:
    with pytest.raises(et.BindError, match=message):
        kinds.check(word)


def test_without_a_gpu_the_refusal_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "probe", lambda: FoundGpus(why="no NVIDIA driver", remedy="install it"))
    with pytest.raises(et.DeviceError, match="--device cuda:0[+]cpu: no NVIDIA driver. help: install it"):
        et.compile(TEXT).plan(data=DATA, device="cuda:0+cpu")


def test_rates_are_those_of_products_on_the_described_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "probe", lambda: GPUS)
    host = Machine(workers=16)
    gpu, cpu = kinds.choose("cuda:0+cpu").rates(host)
    assert gpu == product_flops("NVIDIA H200") and cpu == 16 * host.gemm_flops
    assert kinds.choose("cuda:0").rates(host) == ()
    one, other = kinds.choose("sim+cpu").rates(host)
    assert one == other
    with pytest.raises(et.BindError, match=r"cuda:1 \(NVIDIA T4\) computes is not known.* --rates 10,10,1"):
        kinds.choose("cuda:0,1+cpu").rates(host)
    with pytest.raises(et.BindError, match="less than one of 128 shares"):
        et.compile(TEXT).plan(data=DATA, device="sim+cpu", rates="1000,1", arena="64KiB")


@pytest.mark.parametrize(
    ("gpu", "machine"),
    [
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090x8"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("NVIDIA T4", None),
    ],
)
def test_described_gpus(gpu: str, machine: str | None) -> None:
    from einturnip.cost.described_machines import described

    kernels = None if machine is None else described(machine).kernels
    assert product_flops(gpu) == (None if kernels is None else kernels.product_flops)


def test_the_cpu_computes_by_its_rate_in_its_memory() -> None:
    plan = et.compile(TEXT, dims=dict(i=192, k=192, j=192)).plan(device="sim+cpu", rates="3,1", arena="512KiB,256KiB")
    graph = plan._job.planned.memgraph
    assert graph.arenas_nbytes == (512 << 10, 256 << 10)
    seconds = site_traffic(graph).kernel_seconds  # of a kernel at the rate of its site
    assert seconds.max() <= 1.05 * seconds.mean()
    flops = np.bincount(graph.op_devices()[graph.task >= 0], graph.taskgraph.flops[graph.task[graph.task >= 0]])
    assert flops[0] == pytest.approx(3 * flops[1], rel=0.05)


def test_ops_of_the_host_and_of_streams_do_not_wait_for_each_other() -> None:
    program = et.compile(TEXT.partition("D[")[0] + "output C\n", dims=dict(i=8, k=4096, j=8))  # a divided sum
    graph = program.plan(device="sim:1,2+cpu", rates="2,2,1", arena="32KiB")._job.planned.memgraph
    host = graph.devices - 1
    running, at_end, between = running_devices(graph, host), released_at_end(graph, host), graph.between_devices()
    assert (running[~between] == graph.op_devices()[~between]).all()
    ends = np.stack([graph.op_devices(), graph.source_devices()])[:, between]
    assert (running[between] != host).all() and (ends == host).any()
    waiting = np.repeat(np.arange(len(graph)), np.diff(graph.after_ptr))
    crosses = (running[waiting] == host) | (running[graph.after] == host)
    assert at_end[graph.after[crosses]].all() and not at_end.all()
    assert not released_at_end(graph, None).any()


def test_threads_of_the_host_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", [1e-6])
    threads, kernel = set[str](), HostSite.kernel

    def counted(self: HostSite, stream: int, *rest: Any) -> None:
        kernel(self, stream, *rest)
        threads.update(t.name for t in threading.enumerate() if t.name.startswith("einturnip-cpu-"))

    monkeypatch.setattr(HostSite, "kernel", counted)
    plan = et.compile(TEXT).plan(data=DATA, device="cuda+cpu", rates="1,1", arena="32KiB", workers=2)
    result = plan.run()
    np.testing.assert_array_equal(result["D"], A @ B @ B)
    assert len(threads) >= 2
    assert not [t for t in threading.enumerate() if t.name.startswith("einturnip-cpu-")]
    assert result.report.link_bytes["cuda:0+cpu->cuda:0+cpu"] > 0


@pytest.mark.parametrize("kind", ["sim", "cuda"])
def test_an_error_on_the_cpu_names_its_statement(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, kind, [1e-6])
    program = et.compile("input T : f32[i], K : i64[j]\nY[j] = T[K[j]] * 2\noutput Y\n")
    keys = np.zeros(256, np.int64)
    keys[[0, -1]] = 64  # one in the part of each site
    for rates in ("1,4", "4,1"):
        plan = program.plan(data={"T": np.ones(64, np.float32), "K": keys}, device=f"{kind}+cpu", rates=rates)
        with pytest.raises(et.RunError, match=r"64 is outside (.|\n)*line 2|line 2(.|\n)*64"):
            plan.run()


def test_warnings_of_the_cpu_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "cuda", [1e-6])
    program = et.compile("input X : f64[i]\nY[i] = log(X[i])\noutput Y\n")
    for place in (0, -1):
        x = np.ones(512)
        x[place] = -1
        plan = program.plan(data={"X": x}, device="cuda+cpu", rates="1,1", arena="8KiB")
        (warning,) = plan.run().report.warnings
        assert warning.line == 2 and f"[{place % 512}]" in str(warning.element)


def test_a_registered_kind_works_with_the_cpu(installed: Path) -> None:  # noqa: F811
    program = et.compile(TEXT)
    with pytest.raises(et.BindError, match="eager:0 computes is not known.* --rates 10,1"):
        program.plan(data=DATA, device="eager+cpu")
    result = program.plan(data=DATA, device="eager+cpu", rates="2,1", arena="32KiB").run()
    np.testing.assert_array_equal(result["D"], A @ B @ B)


def test_reproducible_bits_need_equal_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    program, data = et.compile(TEXT), {name: x / 7 for name, x in DATA.items()}
    found = {program.plan(data=data, device=d, reproducible=True).run()["D"].tobytes() for d in ("sim", "sim:1,2+cpu")}
    assert len(found) == 1
    put(monkeypatch, "cuda", [1e-6])
    with pytest.raises(et.BindError, match="kernels of cuda and of the CPU round differently.* such as cuda:0"):
        program.plan(data=data, device="cuda+cpu", reproducible=True)


def test_too_little_memory_names_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    program = et.compile(TEXT)
    with pytest.raises(et.CapacityError, match=r"an arena of 256 B on site 1 \(the CPU\); the minimum is"):
        program.plan(data=DATA, device="sim+cpu", arena="64KiB,256B")
    plan = program.plan(data=DATA, device="sim+cpu", arena="64KiB")
    monkeypatch.setattr(open_sites, "available_memory", lambda: 20 << 10)
    with pytest.raises(
        et.CapacityError, match=r"the arena of the site cpu takes [\d.]+ KiB .* 20.0 KiB are free. help"
    ):
        plan.run()
    with pytest.raises(et.CapacityError, match=r"the process with the .* of the site cpu takes"):
        program.plan(data=DATA, device="sim+cpu", arena="64KiB", host_memory="1MiB")


def test_a_state_has_a_second_copy_where_another_site_reads_it(tmp_path: Path) -> None:
    (tmp_path / "fit.ein").write_text(
        "input X : f64[n,d], y : f64[n]\nstate w : f64[d] = 0\np[n] = X[n,d] * w[d]\n"
        "g[d] = sum[n] X[n,d] * (p[n] - y[n])\nw[d] <- w[d] - 0.001 * g[d]\noutput g\n"
    )
    x, y, w = np.random.default_rng(2).standard_normal((120, 16)), np.ones(120), np.zeros(16)
    for name, array in (("X", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array)
    for _ in range(3):
        g = x.T @ (x @ w - y)
        w -= 0.001 * g
    files = [word for name in ("X", "y") for word in ("-i", f"{name}={tmp_path}/{name}.npy")]
    for device in ("sim:1,2", "sim+cpu"):
        command = ["run", str(tmp_path / "fit.ein"), *files, "-o", f"g={tmp_path}/g.npy", "--device", device]
        result = CliRunner().invoke(cli, [*command, "--steps", "3", "--arena", "32KiB"])
        assert result.exit_code == 0, result.output
        np.testing.assert_allclose(np.load(tmp_path / "g.npy"), g)


def test_plans_are_shown_proven_and_simulated(tmp_path: Path) -> None:
    (tmp_path / "p.ein").write_text(TEXT)
    sizes = [word for label in "ikj" for word in ("--dim", f"{label}=64")]
    budget = ["--device", "sim+cpu", "--rates", "2,1", "--arena", "48KiB,32KiB"]
    command = ["plan", str(tmp_path / "p.ein"), *sizes, *budget]
    for level in ("memgraph", "sites"):
        shown = CliRunner().invoke(cli, [*command, "--emit", level, "--format", "json"])
        assert shown.exit_code == 0, shown.output
        (tmp_path / "plan.json").write_text(shown.stdout)
        assert CliRunner().invoke(cli, ["verify", str(tmp_path / "plan.json")]).exit_code == 0
    simulated = CliRunner().invoke(cli, [*command, "--simulate", "nvlink8"])
    assert simulated.exit_code == 0 and "2 of 8 devices" in simulated.output
