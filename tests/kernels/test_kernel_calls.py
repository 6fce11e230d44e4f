"""Prepared calls of kernels: repeated on other tiles of the same shapes and strides."""

from __future__ import annotations

import numpy as np
import pytest

from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.kernels import select
from einturnip.kernels.protocol import CallArguments, HostKernel, KernelCall
from einturnip.lang import compile_text

pytestmark = [pytest.mark.machine_code, pytest.mark.usefixtures("own_cache")]

EQUATIONS = {
    "Z[i,j] = X[i,j] * 2 + max(Y[i,j], X[i,j])": lambda x, y: 2 * x + np.maximum(x, y),
    "Z[i] = sum[j] X[i,j] * abs(Y[i,j])": lambda x, y: (x * abs(y)).sum(1),
    "Z[i,k] = sum[j] X[i,j] * Y[k,j]": lambda x, y: x @ y.T,
    "Z[k,i] = sum[j] X[i,j] * Y[k,j]": lambda x, y: y @ x.T,
}
SIZE = 40


def kernel_of(equation: str, compiled: bool) -> HostKernel:
    text = f"input X : f64[n,m], Y : f64[n,m]\n{equation}\noutput Z\n"
    graph = build(compile_text(text, "k.ein"), {"X": (SIZE, SIZE), "Y": (SIZE, SIZE)}, {})
    (node,) = [n for n in graph.nodes if isinstance(n, EinsumNode)]
    if compiled:
        select.prepare_code([c for c in (select.product_code(node.einsum, node.einsum.bounds, "full"),) if c])  # type: ignore[arg-type]
        select.prepare_kernels([(node.einsum, "full")])
    return select.compile_kernel(node.einsum, node.einsum.bounds, "full", by_blas=not compiled)


def arrays(seed: int, out: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-3, 4, (SIZE, SIZE)).astype(np.float64) for _ in range(2))
    return x, y, np.full((SIZE,) * out, 7.0)


def prepared(kernel: HostKernel, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> KernelCall:
    workspace = np.empty(kernel.workspace_nbytes, np.uint8)
    return kernel.prepare(CallArguments((out,), (x, y), (0, 0, 0), True, workspace))


@pytest.mark.parametrize("compiled", [False, True], ids=["BLAS or NumPy", "machine code"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_call_moves_to_the_addresses_in_its_words(equation: str, compiled: bool) -> None:
    kernel, expected = kernel_of(equation, compiled), EQUATIONS[equation]
    x, y, out = arrays(0, 1 if equation.startswith("Z[i] ") else 2)
    call = prepared(kernel, x, y, out)
    assert (out == 7).all(), "preparing a call computes nothing"
    if compiled or "max" not in equation and "abs" not in equation:
        assert call.function is not None and len(call.relocations) == 3
    for seed in range(2):
        x2, y2, out2 = arrays(seed, out.ndim)
        tensors = (x2, y2, out2) if call.relocations else (x, y, out)
        for word, tensor in zip(call.relocations, tensors, strict=False):
            call.words[word] = tensor.ctypes.data
        for _ in range(2):
            assert call.run() == 0
            np.testing.assert_array_equal(tensors[2], expected(tensors[0], tensors[1]))


def test_parts_of_a_call_compute_its_tile_in_any_order() -> None:
    equation = "Z[i,j] = X[i,j] * 2 + max(Y[i,j], X[i,j])"
    x, y, out = arrays(0, 2)
    call = prepared(kernel_of(equation, True), x, y, out)
    assert call.divide is not None and call.function is not None
    parts = call.divide(3)
    assert len(parts) == 3
    for words in parts[::-1]:
        call.function(words.ctypes.data)
    np.testing.assert_array_equal(out, EQUATIONS[equation](x, y))
