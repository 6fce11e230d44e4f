"""Generated CUDA compiles for the architectures that are promised, with no GPU and no driver; what it then takes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from einturnip.ir.dtypes import F32
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels.cuda import cache, nvrtc
from einturnip.kernels.cuda.generate import generate
from einturnip.kernels.cuda.types import CudaKernel

from . import corpus
from .counts import registers
from .emulation import no_nvrtc

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
_AT_ONCE = 64  # kernels of one compilation: a header's cost is shared, and a fault names its kernels
_SAMPLE = 120  # one kernel in _SAMPLE and one region in 6, others for each architecture; the gate compiles for one


pytestmark = pytest.mark.skipif(bool(no_nvrtc()), reason=no_nvrtc())


def compile_all(kernels: list[CudaKernel], arch: str) -> dict[str, int]:
    """Every kernel, many at a time; gives their registers."""
    batches = [kernels[n : n + _AT_ONCE] for n in range(0, len(kernels), _AT_ONCE)]
    found: dict[str, int] = {}
    with ThreadPoolExecutor(2) as pool:
        sources = ["\n".join(k.source for k in batch) for batch in batches]
        for batch, cubin in zip(batches, pool.map(lambda s: nvrtc.nvrtc().compile(s, arch), sources), strict=True):
            told = registers(cubin)
            found |= {entry: told[entry] for k in batch for entry in k.entries}
    return found


@pytest.fixture(scope="module")
def kernels() -> list[CudaKernel]:
    _, made = corpus.sources(0)
    assert len(made) > 2500
    return [made[name] for name in sorted(made)]


@pytest.mark.parametrize(
    "arch", [*(pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHITECTURES[:-1]), ARCHITECTURES[-1]]
)
def test_a_sample_of_the_corpus_compiles(arch: str, kernels: list[CudaKernel]) -> None:
    n = ARCHITECTURES.index(arch)
    sample = kernels[n * _SAMPLE // len(ARCHITECTURES) :: _SAMPLE]
    regions = [k for k in kernels if isinstance(k.space, Region)][n :: 2 * len(ARCHITECTURES)]
    assert len(regions) > 2
    used = compile_all([*dict.fromkeys([*sample, *regions])], arch)
    assert min(used.values()) > 0 and max(used.values()) < 255  # of 255 some would have been spilled


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_whole_corpus_compiles(arch: str) -> None:
    counts, made = corpus.sources(50)
    found = compile_all(list(made.values()), arch)
    print(f"{arch}: {len(made)} sources of {counts}, {len(found)} kernels")
    print(f"registers: most {max(found.values())}, median {sorted(found.values())[len(found) // 2]}")


def _sum() -> CudaKernel:
    return generate(
        Einsum(
            ("i",),
            (4,),
            1,
            ((0,), (0,)),
            (F32, F32),
            ScalarCall("add", (OperandRef(0, F32), OperandRef(1, F32)), F32),
            None,
        ),
        "full",
    )


def test_a_wrong_source_shows_the_compilers_words() -> None:
    with pytest.raises(nvrtc.CompileError, match="nowhere"):
        nvrtc.nvrtc().compile("__global__ void f() { nowhere(); }", "sm_80")
    with pytest.raises(nvrtc.CompileError, match="sm_1"):
        nvrtc.nvrtc().compile("__global__ void f() {}", "sm_1")


def test_ptx_too() -> None:
    assert b".visible .entry" in nvrtc.nvrtc().compile(_sum().source, "compute_80")


def test_the_cache_keeps_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source, cuda = _sum().source, nvrtc.nvrtc().version[0]
    first = cache.compiled(source, 80, cuda)
    monkeypatch.setattr(nvrtc.Nvrtc, "compile", lambda *a: b"\x7fELF another")
    assert cache.compiled(source, 80, cuda) == first
    (file,) = (tmp_path / "einturnip/cuda").iterdir()
    file.write_bytes(b"half of it")
    assert cache.compiled(source, 80, cuda) == b"\x7fELF another" != cache.compiled(source + "\n", 90, cuda) + b"x"
    small = replace(cache.CUBINS, max_files=1)
    monkeypatch.setattr(cache, "CUBINS", small)
    cache.compiled(source + "\n\n", 90, cuda)
    small.prune()
    assert len(list((tmp_path / "einturnip/cuda").iterdir())) == 1


def test_no_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(["/nowhere/libnvrtc.so"]))
    with pytest.raises(nvrtc.NvrtcMissing, match=re.escape("pip install nvidia-cuda-nvrtc")):
        nvrtc.nvrtc.__wrapped__()


def test_the_compiler_is_no_newer_than_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nvrtc.nvrtc()
    assert nvrtc.nvrtc(found.version[0]) is nvrtc.nvrtc(found.version[0])
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter([found.path]))
    with pytest.raises(nvrtc.NvrtcMissing, match=f"{found.version[0]} is newer than the driver's, "):
        nvrtc.nvrtc.__wrapped__(found.version[0] - 1)


def test_a_gpu_newer_than_the_compiler_gets_ptx() -> None:
    found = nvrtc.nvrtc()
    assert found.target(90) == "sm_90"
    newest = found.capabilities[-1]
    assert found.target(newest + 10) == f"compute_{newest}"
    assert b".visible .entry" in found.compile(_sum().source, found.target(newest + 10))
    with pytest.raises(nvrtc.NvrtcMissing, match=r"no code for GPUs of compute capability 3\.5; .*-cu12"):
        found.target(35)


def test_sizes_and_names_of_labels_make_no_new_source() -> None:
    one = Einsum(("i", "j"), (4, 5), 1, ((0, 1),), (F32,), OperandRef(0, F32), corpus.total(F32))
    other = Einsum(("a", "b"), (70, 9), 1, ((0, 1),), (F32,), OperandRef(0, F32), corpus.total(F32))
    assert generate(one, "full").source == generate(other, "full").source
