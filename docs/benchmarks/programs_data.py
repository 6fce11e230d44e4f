"""The data and references of programs.py: each case creates its files and a measure of the error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
Check = Callable[[], float]


def _save(folder: Path, **arrays: Any) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _off(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest expected value."""
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def _chain(**sizes: int) -> Callable[[Path], Check]:
    def make(folder: Path) -> Check:
        drawn = np.random.default_rng(3)
        axes = {"A": "ij", "B": "jk", "C": "il", "D": "lm", "E": "mk"}
        data = {x: drawn.standard_normal([sizes[a] for a in of], np.float32) for x, of in axes.items()}
        _save(folder, **data)
        expected = data["A"] @ data["B"] + data["C"] @ (data["D"] @ data["E"])
        return lambda: _off(np.load(folder / "out_R.npy"), expected)

    return make


def _graph(folder: Path) -> Check:
    """Disconnected copies of the characters of Les Miserables, with features of their own."""
    from scipy.sparse import csr_array

    copies, d, drawn = 3000, 64, np.random.default_rng(2)
    pairs = np.loadtxt(EXAMPLES / "models" / "graph_attention.csv", np.int64, delimiter=",")
    same = np.arange(pairs.max() + 1)
    edges = np.concatenate([pairs, pairs[:, ::-1], np.stack([same, same], 1)])
    edges = (edges + len(same) * np.arange(copies)[:, None, None]).reshape(-1, 2)
    n = len(same) * copies
    x, w = drawn.standard_normal((n, d), np.float32), drawn.standard_normal((8, d, 8), np.float32) / 8
    a, b = drawn.standard_normal((2, 8, 8), np.float32)
    source, target = np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1])
    _save(folder, X=x, W=w, a=a, b=b, source=source, target=target)
    expected = np.empty((8, n, 8), np.float32)
    for head in range(8):
        z = x @ w[head]
        s = (z @ a[head])[source] + (z @ b[head])[target]
        p = np.exp(np.where(s > 0, s, 0.2 * s).astype(np.float64))
        weights = csr_array((p, (target, source)), (n, n))
        expected[head] = (weights @ z) / weights.sum(axis=1)[:, None]
    return lambda: _off(np.load(folder / "out_Y.npy"), expected)


def _circuit(folder: Path) -> Check:
    """All amplitudes of 24 of 25 qubits after eight cycles, the other one ending in 0; by opt_einsum."""
    import opt_einsum

    sys.path.insert(0, str(EXAMPLES / "models"))
    from tensor_network import GATES, random_circuit

    circuit = random_circuit(5, 5, 8, opened=24)
    _save(folder, **GATES)
    (folder / "circuit.ein").write_text(circuit.program())
    expected = opt_einsum.contract(*circuit.operands(), optimize="auto")
    return lambda: _off(np.load(folder / "out_amplitude.npy"), expected)


def _ccd(folder: Path) -> Check:
    """20 occupied and 64 virtual orbitals; the equations term by term in NumPy."""
    n, m, drawn = 20, 64, np.random.default_rng(4)

    def pairs(*shape: int) -> Any:
        v = drawn.standard_normal(shape) * 0.01
        v = v - v.swapaxes(0, 1)
        return v - v.swapaxes(2, 3)

    def other(x: Any) -> Any:
        x = x - x.swapaxes(0, 1)
        return x - x.swapaxes(2, 3)

    def e(equation: str, *arrays: Any) -> Any:
        return np.einsum(equation, *arrays, optimize=True)

    oo, vv, g = pairs(n, n, n, n), pairs(m, m, m, m), pairs(n, n, m, m)
    ov, eo, ev = drawn.standard_normal((n, m, m, n)) * 0.01, np.linspace(-9, -6, n), np.linspace(6, 9, m)
    _save(folder, oo=oo, ov=ov, vv=vv, g=g, eo=eo, ev=ev)
    gap = eo[:, None, None, None] + eo[:, None, None] - ev[:, None] - ev
    t = g / gap
    for _ in range(8):
        r = g + 0.5 * e("abcd,ijcd->ijab", vv, t) + 0.5 * e("klij,klab->ijab", oo, t)
        r += other(e("kbcj,ikac->ijab", ov, t)) + 0.25 * e("klcd,ijcd,klab->ijab", g, t, t)
        r += 0.5 * other(e("klcd,ikac,jlbd->ijab", g, t, t))
        x, y = e("klcd,ijac,klbd->ijab", g, t, t), e("klcd,ikab,jlcd->ijab", g, t, t)
        t = (r - 0.5 * (x - x.swapaxes(2, 3)) - 0.5 * (y - y.swapaxes(0, 1))) / gap
    energy = 0.25 * np.sum(g * t)
    return lambda: max(
        _off(np.load(folder / "out_T.npy"), t), _off(np.load(folder / "out_energy.npy"), np.asarray(energy))
    )


def _digits(folder: Path) -> Check:
    """Compared with the run at full memory; the accuracy on held-out images must be at least 97%."""
    from sklearn.datasets import load_digits

    from programs_run import DIGITS_STEPS

    drawn, trained = np.random.default_rng(0), 1400
    images, labels = load_digits(return_X_y=True)
    order = drawn.permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    w1, w2 = drawn.standard_normal((64, 96), np.float32) / 6, drawn.standard_normal((96, 10), np.float32) / 10
    _save(folder, images=images, labels=labels, W1=w1, W2=w2)
    _save(folder, batches=drawn.integers(0, trained, (DIGITS_STEPS, 128)))
    first: list[Any] = []

    def check() -> float:
        W1, b1, W2, b2 = (np.load(folder / f"out_{name}.npy") for name in ("W1", "b1", "W2", "b2"))
        scores = np.maximum(images[trained:] @ W1 + b1, 0) @ W2 + b2
        right = float(np.mean(scores.argmax(1) == labels[trained:]))
        if right < 0.97:
            raise SystemExit(f"digits: only {right:.1%} of the held-out images are told")
        first.append(scores)
        return _off(scores, first[0])

    return check


def _lora(folder: Path) -> Check:
    """The losses of two steps, compared with those at full memory."""
    _save(folder, windows=np.random.default_rng(0).integers(0, 49152, (2, 65)).astype(np.int32))
    first: list[Any] = []

    def check() -> float:
        first.append(np.load(folder / "out_losses.npy"))
        return _off(first[-1], first[0])

    return check


CASES: dict[str, Callable[[Path], Check]] = {
    "matrix chain, square": _chain(i=4096, j=4096, k=4096, l=4096, m=4096),
    "matrix chain, skewed": _chain(i=2048, j=8192, k=4096, l=512, m=8192),
    "graph attention": _graph,
    "tensor network": _circuit,
    "CCD": _ccd,
    "digits": _digits,
    "LoRA": _lora,
}
