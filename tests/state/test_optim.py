"""``std.optim`` beside PyTorch's optimisers: what those made of the same twelve steps (PyTorch, CPU, float32)."""

import math

import numpy as np
import pytest

import einturnip as et

TARGET = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
PROGRAM = """import std.optim
input target : f32[n, m]
state W : f32[n, m] = 0.5
state M : f32[n, m] = 0
state V : f32[n, m] = 0
state k : i64 = 0
loss = sum[i, j] (W[i, j] - target[i, j])^4
g[i, j] = grad(loss, W[i, j])
{update}
k <- k + 1
output loss
"""
PYTORCH = {
    "W[i, j], M[i, j], V[i, j] <- adamw(W[i, j], g[i, j], M[i, j], V[i, j], k, warmup_cosine(k, 0.05, 3, 10))":
        [[0.2424925, 0.2218247], [0.704149, 0.2399442], [0.2107158, 0.2945444]],
    "W[i, j] <- sgd(W[i, j], g[i, j], 0.01, decay = 0.1)":
        [[0.471587, 0.3993784], [0.4954158, 0.4678452], [0.1803862, 0.4928549]],
    "W[i, j], M[i, j] <- momentum(W[i, j], g[i, j], M[i, j], 0.01)":
        [[0.4032835, 0.1391919], [0.5059657, 0.3883131], [-0.5649246, 0.4942833]],
    "W[i, j], M[i, j] <- nesterov(W[i, j], g[i, j], M[i, j], 0.01, decay = 0.1)":
        [[0.3745994, 0.1259103], [0.477295, 0.3600286], [-0.4851374, 0.4643236]],
}  # fmt: skip


@pytest.mark.parametrize("update", PYTORCH)
def test_twelve_steps_are_those_of_pytorch(update) -> None:
    with et.compile(PROGRAM.format(update=update)).session(target=TARGET, arena="1MiB") as session:
        for _ in range(12):
            session.step()
        np.testing.assert_allclose(session.state("W"), PYTORCH[update], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("warmup(k, 0.3, 4)", [0.3 * min(1, (k + 1) / 4) for k in range(9)]),
        ("cosine(k, 0.3, 8)", [0.3, 0.28858193, 0.25606602, 0.20740251, 0.15, 0.09259749, 0.04393398, 0.01141807, 0]),
        ("linear(k, 0.3, 4, 0.1)", [0.3 - 0.2 * min(1, k / 4) for k in range(9)]),
        ("step_decay(k, 0.3, 3, 0.5)", [0.3 * 0.5 ** (k // 3) for k in range(9)]),
        (
            "warmup_cosine(k, 0.3, 2, 6, 0.1)",
            [0.15, 0.3] + [0.1 + 0.1 * (1 + math.cos(math.pi * min(1, k / 4))) for k in range(7)],
        ),
    ],
)
def test_schedules(schedule, expected) -> None:
    text = f"import std.optim\nstate k : i64 = 0\nlr = {schedule}\nk <- k + 1\noutput lr"
    with et.compile(text).session() as session:
        np.testing.assert_allclose([session.step()["lr"] for _ in range(9)], expected, atol=1e-8)


def test_gradients_are_clipped_to_a_norm() -> None:
    text = "import std.optim\ninput g : f64[n]\nc[i] = g[i] * clip_norm(sum[i] g[i]^2, 2.0)\noutput c"
    np.testing.assert_allclose(np.linalg.norm(et.compile(text)(g=np.array([3.0, 4.0]))["c"]), 2, rtol=1e-5)
    np.testing.assert_array_equal(et.compile(text)(g=np.array([0.3, 0.4]))["c"], [0.3, 0.4])
