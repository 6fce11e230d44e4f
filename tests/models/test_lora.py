"""LoRA on a small random model: steps of AdamW compared with the same in NumPy, derived by complex steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einturnip as et

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "models"
L, D, HEADS, GROUPS, WIDTH, F, V, RANK, ALPHA, RATE = 2, 8, 4, 2, 4, 12, 20, 2, 3.0, 0.02
Q, KV = HEADS * WIDTH, GROUPS * WIDTH
SHAPES = {"E": (V, D), "Wq": (L, Q, D), "Wk": (L, KV, D), "Wv": (L, KV, D), "Wo": (L, D, Q)}
SHAPES |= {"W1": (L, F, D), "W3": (L, F, D), "W2": (L, D, F), "gain1": (L, D), "gain2": (L, D), "gain": (D,)}
LEARNED = {"Aq": (L, RANK, D), "Bq": (L, Q, RANK), "Av": (L, RANK, D), "Bv": (L, KV, RANK)}
WINDOWS = [[3, 7, 1, 19, 4, 4], [0, 12, 5, 7, 3, 18], [1, 2, 3, 4, 5, 6]]


def _weights() -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(5)
    made = {name: drawn.standard_normal(shape) / np.sqrt(shape[-1]) for name, shape in SHAPES.items()}
    made |= {name: 1 + 0.1 * drawn.standard_normal(SHAPES[name]) for name in ("gain1", "gain2", "gain")}
    return {name: array.astype(np.float32) for name, array in made.items()}


def _norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def _turned(x: np.ndarray) -> np.ndarray:
    """Adjacent pairs of x[s, heads, width], turned; x may be complex, so that its pairs cannot be."""
    angle = np.arange(len(x))[:, None, None] * 10000.0 ** (-2 * np.arange(WIDTH // 2) / WIDTH)
    a, b = x[..., ::2], x[..., 1::2]
    return np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1).reshape(x.shape)


def _loss(w: dict[str, np.ndarray], low: dict[str, np.ndarray], ids: list[int]) -> Any:
    """The mean loss of a window; analytic in what is learned."""
    x, n = w["E"][ids[:-1]], len(ids) - 1
    for k in range(L):
        a = _norm(x, w["gain1"][k])
        added = {x: a @ low[f"A{x}"][k].T @ low[f"B{x}"][k].T * ALPHA / RANK for x in "qv"}
        q = _turned((a @ w["Wq"][k].T + added["q"]).reshape(n, HEADS, WIDTH))
        key = _turned((a @ w["Wk"][k].T).reshape(n, GROUPS, WIDTH)).repeat(HEADS // GROUPS, 1)
        v = (a @ w["Wv"][k].T + added["v"]).reshape(n, GROUPS, WIDTH).repeat(HEADS // GROUPS, 1)
        p = np.exp(np.einsum("shc,thc->hst", q, key) / np.sqrt(WIDTH)) * np.tri(n)
        p = p / p.sum(-1, keepdims=True)
        x = x + np.einsum("hst,thc->shc", p, v).reshape(n, Q) @ w["Wo"][k].T
        a = _norm(x, w["gain2"][k])
        z = a @ w["W1"][k].T
        x = x + (z / (1 + np.exp(-z)) * (a @ w["W3"][k].T)) @ w["W2"][k].T
    z = _norm(x, w["gain"]) @ w["E"].T
    return np.mean(np.log(np.exp(z).sum(-1)) - z[np.arange(n), ids[1:]])


def _gradient(w: dict[str, np.ndarray], low: dict[str, np.ndarray], ids: list[int], name: str) -> np.ndarray:
    found = np.zeros(low[name].shape)
    for place in np.ndindex(found.shape):
        moved = low[name].astype(complex)
        moved[place] += 1e-30j
        found[place] = _loss(w, low | {name: moved}, ids).imag / 1e-30
    return found


def _trained(w: dict[str, np.ndarray], low: dict[str, np.ndarray]) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses of AdamW's steps, and what was learned."""
    first, second = ({name: np.zeros(shape) for name, shape in LEARNED.items()} for _ in range(2))
    losses = []
    for step, ids in enumerate(WINDOWS, 1):
        losses.append(_loss(w, low, ids).real)
        gradients = {name: _gradient(w, low, ids, name) for name in LEARNED}
        for name, g in gradients.items():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g * g
            mean, root = first[name] / (1 - 0.9**step), np.sqrt(second[name] / (1 - 0.999**step))
            low = low | {name: low[name] * (1 - 0.01 * RATE) - RATE * mean / (root + 1e-8)}
    return losses, low


@pytest.mark.parametrize("settings", [{"memory": "256MiB"}, {"arena": "24KiB"}])
def test_steps_are_those_of_adamw(settings: dict[str, Any]) -> None:
    weights, drawn = _weights(), np.random.default_rng(6)
    low = {name: np.float32(drawn.standard_normal(shape)) * np.float32(0.3) for name, shape in LEARNED.items()}
    program = et.compile(EXAMPLES / "lora.ein", dims={"h": HEADS})
    numbers = {"base": 10000.0, "eps": 1e-5, "alpha": ALPHA, "lr": RATE}
    with program.session(data={**weights, **low, **numbers}, **settings) as session:
        losses = [float(session.step(ids=np.array(ids, np.int32))["loss"]) for ids in WINDOWS]
        found = {name: session.state(name) for name in LEARNED}
    exact = {name: array.astype(np.float64) for name, array in weights.items()}
    expected, learned = _trained(exact, {name: array.astype(np.float64) for name, array in low.items()})
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name in LEARNED:
        np.testing.assert_allclose(found[name], learned[name], atol=2e-4, err_msg=name)
