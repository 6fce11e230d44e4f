"""PyTorch as an alternative on a GPU, as written by hand; ``cpu`` tests the same code."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from harness.gpu_cases import GpuCase
from harness.peers import _torch_formula

Call = Callable[[], float]
TORCH = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def peers(case: GpuCase, data: Mapping[str, Any], device: str) -> dict[str, Callable[[], Call]]:
    """The peers by name, each prepared when called; none if there is no PyTorch for the device."""
    if find_spec("torch") is None or case.case.kind == "":
        return {}
    torch = import_module("torch")
    if device != "cpu" and not torch.cuda.is_available():
        return {}
    torch.set_grad_enabled(False)
    if case.part in "ab":
        found = {"torch": lambda: _formula(torch, case, data, device, False)}
        if case.part == "b":
            found["torch.compile"] = lambda: _formula(torch, case, data, device, True)
        return found
    if case.part == "d":
        return {"torch, no cap": lambda: _chain(torch, case, data, device)}
    made: dict[str, Callable[[], Call]] = {"torch, no cap": lambda: _prefill(torch, case, data, device)}
    made["torch, weights streamed by hand"] = lambda: Streamed(torch, case, data, device).call
    if find_spec("accelerate") is not None and device != "cpu":
        made["accelerate cpu_offload"] = lambda: _offloaded(torch, case, data, device)
    return made


def tensor(torch: Any, array: Any, dtype: str) -> Any:
    """An array as a host tensor; bf16, which NumPy lacks, by its bits."""
    if dtype == "bf16" and array.dtype.itemsize == 2:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def timed(torch: Any, device: str, work: Callable[[], Any]) -> float:
    """Seconds of some work: between two events on a GPU, by the host's clock if it waits for the host."""
    if device != "cpu":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


def _kernel_timed(torch: Any, device: str, work: Callable[[], Any]) -> float:
    """Seconds on the GPU alone."""
    if device == "cpu":
        return timed(torch, device, work)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _formula(torch: Any, case: GpuCase, data: Mapping[str, Any], device: str, compiled: bool) -> Call:
    formula = _torch_formula(torch, import_module("torch.nn.functional"), case.case)
    assert formula is not None
    run = torch.compile(formula) if compiled else formula
    given = [tensor(torch, x, case.dtype).to(device) for x in data.values()]

    def call() -> float:
        torch.backends.cuda.matmul.allow_tf32 = case.tf32
        return _kernel_timed(torch, device, lambda: run(*given))

    call()
    return call


def _chain(torch: Any, case: GpuCase, data: Mapping[str, Any], device: str) -> Call:
    a, b = (tensor(torch, x, case.dtype) for x in data.values())

    def work() -> Any:
        right = b.to(device)
        return (a.to(device) @ right @ right).cpu()

    return lambda: timed(torch, device, work)


def layer(torch: Any, x: Any, weights: tuple[Any, ...]) -> Any:
    """One layer of gpu_cases.prefill."""
    functional = import_module("torch.nn.functional")
    q, k, v, o, g, u, d = weights
    heads = [torch.einsum("bse,ehd->bhsd", x, w) for w in (q, k, v)]
    y = x + torch.einsum("bhsd,hde->bse", functional.scaled_dot_product_attention(*heads, is_causal=True), o)
    return y + (functional.silu(y @ g) * (y @ u)) @ d


def _layers(torch: Any, case: GpuCase, data: Mapping[str, Any]) -> tuple[Any, list[tuple[Any, ...]]]:
    first, *rest = (tensor(torch, x, case.dtype) for x in data.values())
    return first, [tuple(rest[n : n + 7]) for n in range(0, len(rest), 7)]


def _prefill(torch: Any, case: GpuCase, data: Mapping[str, Any], device: str) -> Call:
    """Weights on the GPU from the start, which no cap permits."""
    first, layers = _layers(torch, case, data)
    held = [tuple(w.to(device) for w in one) for one in layers]

    def work() -> Any:
        x = first.to(device)
        for weights in held:
            x = layer(torch, x, weights)
        return x.cpu()

    return lambda: timed(torch, device, work)


class Streamed:
    """Weights in host memory, with two layers' buffers on the GPU: one is used, the other filled.

    Unpinned weights pass through two pinned buffers, each refilled when its copy has ended.
    """

    def __init__(self, torch: Any, case: GpuCase, data: Mapping[str, Any], device: str) -> None:
        self.torch, self.device, self.gpu = torch, device, device != "cpu"
        self.first, self.layers = _layers(torch, case, data)
        self.room = [[torch.empty_like(w, device=device) for w in self.layers[0]] for _ in range(2)]
        self.staged = [[torch.empty_like(w, pin_memory=self.gpu) for w in self.layers[0]] for _ in range(2)]
        self.copies: Any = torch.cuda.Stream(device) if self.gpu else None
        self.arrived: list[Any]
        self.used: list[Any]
        self.arrived, self.used = ([torch.cuda.Event() if self.gpu else None for _ in range(2)] for _ in range(2))

    def call(self) -> float:
        """One prefill's seconds."""
        return timed(self.torch, self.device, self.work)

    def work(self) -> Any:
        """One prefill."""
        x = self.first.to(self.device)
        self._fill(0, False)
        for n in range(len(self.layers)):
            if n + 1 < len(self.layers):
                self._fill(n + 1, n > 0)
            if self.gpu:
                self.torch.cuda.current_stream().wait_event(self.arrived[n % 2])
            x = layer(self.torch, x, tuple(self.room[n % 2]))
            if self.gpu:
                self.used[n % 2].record()
        return x.cpu()

    def _fill(self, n: int, reused: bool) -> None:
        half = n % 2
        if self.gpu and n > 1:
            self.arrived[half].synchronize()  # the pinned half has been copied
        for target, source in zip(self.staged[half], self.layers[n], strict=True):
            target.copy_(source)
        with self.torch.cuda.stream(self.copies) if self.gpu else nullcontext():
            if self.gpu and reused:
                self.copies.wait_event(self.used[half])
            for target, source in zip(self.room[half], self.staged[half], strict=True):
                target.copy_(source, non_blocking=self.gpu)
            if self.gpu:
                self.arrived[half].record(self.copies)


def _offloaded(torch: Any, case: GpuCase, data: Mapping[str, Any], device: str) -> Call:
    """Accelerate's offloading: weights of each layer are fetched before it and dropped after it."""
    first, layers = _layers(torch, case, data)

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, weights: tuple[Any, ...]) -> None:
            super().__init__()
            for n, w in enumerate(
                weights
            ):  # of the layer itself and not of a submodule, because hooks fetch the weights of the called module
                self.register_parameter(f"w{n}", torch.nn.Parameter(w, requires_grad=False))

        def forward(self, x: Any) -> Any:
            return layer(torch, x, tuple(getattr(self, f"w{n}") for n in range(7)))

    model = torch.nn.Sequential(*(Layer(one) for one in layers))
    import_module("accelerate").cpu_offload(model, execution_device=torch.device(device))
    return lambda: timed(torch, device, lambda: model(first.to(device)).cpu())
