"""Arrays on the GPU as inputs and results: in place, after the caller's work, in the caller's library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import BindError, CapacityError, DTypeError
from einturnip.devices import kind as kinds
from einturnip.devices.cuda import kind as kind_module
from einturnip.storage.device_arrays import DeviceArray
from tests.kernels.cuda.emulation import COMPILER, LaunchExecutor

from .conftest import put
from .fake_cuda import FakeCalls

STREAM = 7000
PRODUCT = "input A : f32[i,k], B : f32[k,j]\nC[i,j] = sum[k] A[i,k] * B[k,j]\noutput C\n"


class OnGpu:
    """An array of a library such as CuPy: a stream is current when its interface is read."""

    __array_ufunc__ = None
    stream: int | None = STREAM
    read_only = False

    def __init__(self, array: np.ndarray, number: int = 0) -> None:
        self.array, self.number = array, number

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        a = self.array
        place = a.__array_interface__["data"][0]
        strides = None if a.flags.c_contiguous else a.strides
        return {
            "shape": a.shape, "typestr": a.dtype.str, "data": (place, self.read_only), "strides": strides,
            "version": 3, "stream": self.stream,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number

    def __array__(self, *given: Any, **named: Any) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __getitem__(self, at: Any) -> OnGpu:
        return OnGpu(self.array[at])


class ByDlpack:
    """An array of a library that has DLPack alone. ``joined``: the streams that waited for its work."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.joined = array, list[int]()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int) -> object:
        self.joined.append(stream)
        return self.array.__dlpack__()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Returns a function that puts an array on the fake GPU."""
    arrays: list[tuple[int, int]] = []
    monkeypatch.setattr(FakeCalls, "arrays", arrays)
    monkeypatch.setattr(FakeCalls, "callers", {STREAM, 1})
    device = kinds.find("cuda")
    made = put(monkeypatch, "cuda", [1e-3, 1.0, 1e-6])

    def here(array: np.ndarray, of: type = OnGpu) -> Any:
        base = array if array.base is None else array.base
        arrays.append(np.lib.array_utils.byte_bounds(base))
        return of(array)

    def empty(number: int, shape: Sequence[int], dtype: Any) -> OnGpu:
        result: OnGpu = here(np.full(shape, 7, dtype))
        return result

    monkeypatch.setattr(device, "empty", empty)

    def fetch(number: int, target: np.ndarray, place: int) -> None:
        assert any(a <= place and place + target.nbytes <= b for a, b in arrays)
        ctypes.memmove(target.ctypes.data, place, target.nbytes)

    monkeypatch.setattr(kind_module, "fetch", fetch)
    here.made = made  # type: ignore[attr-defined]
    yield here


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def test_an_einsum_of_arrays_on_the_gpu_stays_there(gpu: Any) -> None:
    a, b = numbers(6, 5), numbers(5, 7, seed=1)
    result = et.einsum("ij,jk->ik", gpu(a), gpu(b))
    assert isinstance(result, OnGpu)
    np.testing.assert_array_equal(result.array, a @ b)
    assert len(gpu.made) == 1 and gpu.made[0].closed and not gpu.made[0].memory


VIEWS = {
    "in C order": lambda a: np.ascontiguousarray(a),
    "in F order": lambda a: np.asfortranarray(a),
    "a part": lambda a: np.pad(a, 3)[3:-3, 3:-3],
    "every second element": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "reversed": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
}


TEXTS = (
    "C[i,j] = sum[k] A[i,k] * B[k,j]",
    "C[i,j] = max[k] (A[i,k] + B[k,j])",
    "C[i,j] = 2 * A[i,j] - B[j,i]",
    "S[i] = sum[k] exp(A[i,k])\nC[i,j] = exp(B[i,j]) / S[i]",
    "C[i,j] = A[j,i]",
    "T[i,j] = A[i,k] * B[k,j]\nC[i,j] = T[i,k] * A[k,j]",
)


def read_in_place(text: str, view: str, gpu: Any) -> None:
    """The plan gives the tiles of inputs no bytes, and nothing is copied, whatever their strides."""
    a, b = VIEWS[view](numbers(9, 9)), VIEWS[view](numbers(9, 9, seed=1))
    program = et.compile(f"input A : f32[n,n], B : f32[n,n]\n{text}\noutput C\n")
    expected = program(A=np.array(a), B=np.array(b))["C"]
    for arena in (None, 2048):
        result = program(A=gpu(a), B=gpu(b), arena=arena)
        np.testing.assert_allclose(result["C"].array, expected, rtol=1e-6)
        links = result.report.link_bytes
        assert not any(nbytes for link, nbytes in links.items() if "disk->" in link or "host" in link)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("text", TEXTS)
def test_inputs_are_read_where_they_are(text: str, view: str, gpu: Any) -> None:
    read_in_place(text, view, gpu)


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="needs g++ or clang++")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("text", TEXTS)
def test_generated_sources_read_inputs_where_they_are(
    text: str, view: str, gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    put(monkeypatch, "cuda", [1e-3, 1.0, 1e-6], source=LaunchExecutor(tmp_path))
    read_in_place(text, view, gpu)


def test_tiles_of_inputs_take_no_bytes_of_the_arena(gpu: Any) -> None:
    program = et.compile("input A : f32[n,n]\ns = sum[i,j] A[i,j]\noutput s\n")
    a = numbers(512, 512)
    plan = program.plan(A=gpu(a), arena="2MiB")
    assert plan._job.planned.memgraph.peak_nbytes < a.nbytes // 4  # type: ignore[union-attr]
    assert plan.run()["s"].array == a.sum()


def test_a_concatenation_of_arrays_on_the_gpu(gpu: Any) -> None:
    program = et.compile(
        "input A : f32[n,m], B : f32[n,m]\nC[i | j, m] = A[i,m] | B[j,m]\nD[i,j] = 2 * C[i,j]\noutput D\n"
    )
    a, b = numbers(4, 5), numbers(4, 5, seed=1)
    for order in (np.ascontiguousarray, np.asfortranarray):
        result = program(A=gpu(order(a)), B=gpu(order(b)))
        np.testing.assert_array_equal(result["D"].array, 2 * np.concatenate([a, b]))


def test_a_run_waits_for_the_work_of_the_callers_stream(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input is filled late on the caller's stream; without the wait, the run would read zeros."""
    device, a = kinds.find("cuda"), np.zeros((4, 4), np.float32)
    opened = device.open  # type: ignore[union-attr]

    def busy(*given: Any) -> Any:
        found = opened(*given)
        gpu.made[-1].streams.submit(STREAM, lambda: a.fill(3), 1.0)
        return found

    monkeypatch.setattr(device, "open", busy)
    np.testing.assert_array_equal(et.einsum("ij->ji", gpu(a)).array, np.full((4, 4), 3))


def test_an_array_without_a_stream_needs_no_wait(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnGpu, "stream", None)
    a = numbers(4, 4)
    np.testing.assert_array_equal(et.einsum("ij->ji", gpu(a)).array, a.T)
    assert STREAM not in gpu.made[-1].clocks


def test_dlpack_joins_the_legacy_stream_in_every_run(gpu: Any) -> None:
    a, b = gpu(numbers(4, 6), ByDlpack), gpu(numbers(6, 4, seed=1), ByDlpack)
    plan = et.compile(PRODUCT).plan(A=a, B=b)
    for runs in (1, 2):
        np.testing.assert_array_equal(plan.run()["C"].array, a.array @ b.array)
        assert a.joined == [1] * (1 + runs)


def test_inputs_on_the_host_and_on_the_gpu(gpu: Any) -> None:
    a, b = numbers(6, 5), numbers(5, 7, seed=1)
    result = et.compile(PRODUCT)(A=gpu(a), B=b)
    np.testing.assert_array_equal(result["C"].array, a @ b)


def test_results_go_where_out_says(gpu: Any, tmp_path: Any) -> None:
    a, b = numbers(6, 5), numbers(5, 7, seed=1)
    program, target, host = et.compile(PRODUCT), gpu(np.zeros((6, 7), np.float32)), np.zeros((6, 7), np.float32)
    wide = np.zeros((6, 14), np.float32)
    for x, y in ((gpu(a), gpu(b)), (a, b)):
        target.array[:] = 0
        assert program(A=x, B=y, out={"C": target})["C"] is target
        np.testing.assert_array_equal(target.array, a @ b)
    program(A=gpu(a), B=gpu(b), out={"C": host})
    np.testing.assert_array_equal(host, a @ b)
    program(A=gpu(a), B=gpu(b), out={"C": gpu(wide[:, ::2])})
    np.testing.assert_array_equal(wide[:, ::2], a @ b)
    result = program(A=gpu(a), B=gpu(b), out={"C": str(tmp_path / "c.npy")})
    np.testing.assert_array_equal(np.asarray(result["C"]), a @ b)
    assert et.einsum("ij,jk->ik", gpu(a), gpu(b), out=target) is target


def test_a_nan_of_an_input_on_the_gpu_is_found(gpu: Any) -> None:
    a = numbers(6, 5)
    a[4, 3] = np.inf
    result = et.compile("input A : f32[i,k]\nC[i,k] = A[i,k] - A[i,k]\noutput C\n")(A=gpu(np.asfortranarray(a)))
    assert np.isnan(result["C"].array[4, 3])
    assert any("A[4,3]" in str(w) or "A[4, 3]" in str(w) for w in result.report.warnings), result.report.warnings


def test_refusals(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program, a, b = et.compile(PRODUCT), gpu(numbers(6, 5)), gpu(numbers(5, 7))
    other = OnGpu(numbers(5, 7), number=1)
    with pytest.raises(BindError, match=r"A is in the memory of cuda:0 and B in that of cuda:1\. help: copy one"):
        program(A=a, B=other)
    with pytest.raises(BindError, match=r"A is in the memory of cuda:0, and device='cpu'\. help: leave out device="):
        program(A=a, B=b, device="cpu")
    with pytest.raises(BindError, match=r"A is in the memory of cuda:0, and the run is on cpu:0.*cupy\.asnumpy"):
        program.session(A=a, B=b).step()
    with pytest.raises(BindError, match="shares memory with an input"):
        et.compile("input A : f32[i,i]\nC[i,j] = A[j,i]\noutput C\n")(A=(x := gpu(numbers(4, 4))), out={"C": x})
    with pytest.raises(BindError, match=r"output C: is f32\[6, 7\], but the array given for it is f64\[6, 7\]"):
        program(A=a, B=b, out={"C": gpu(np.zeros((6, 7)))})
    with pytest.raises(BindError, match="broadcast view"):
        program(A=a, B=b, out={"C": gpu(np.broadcast_to(np.zeros(7, np.float32), (6, 7)))})
    with pytest.raises(BindError, match="declared"):
        program(A=gpu(numbers(6, 5).astype(np.float64)), B=b)
    with pytest.raises(DTypeError, match="has dtype"):
        DeviceArray("A", OnGpu(np.zeros(3, "M8[s]")), 0)
    with pytest.raises(BindError, match="not aligned"):
        DeviceArray("A", OnGpu(np.frombuffer(bytes(17), np.float32, 4, 1)), 0)
    with pytest.raises(CapacityError, match=r"the result C takes 168 B .*out=\{\"C\": \"C.npy\"\}"):
        program(A=a, B=b, memory=100)
    monkeypatch.setattr(OnGpu, "read_only", True)
    program(A=a, B=b, out={"C": np.zeros((6, 7), np.float32)})
    with pytest.raises(BindError, match="read-only"):
        program(A=a, B=b, out={"C": gpu(np.zeros((6, 7), np.float32))})
