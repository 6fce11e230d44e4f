"""Coupled-cluster doubles beside NumPy: the equations written term by term, without intermediates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import einturnip as et

PROGRAM = Path(__file__).parents[2] / "docs" / "examples" / "models" / "ccd.ein"
N, M, STEPS = 4, 6, 8


def _integrals() -> np.ndarray:
    """Random <pq||rs>: antisymmetric in each pair, symmetric between them."""
    v = np.random.default_rng(4).standard_normal((N + M,) * 4) * 0.05
    v = v - v.transpose(1, 0, 2, 3)
    v = v - v.transpose(0, 1, 3, 2)
    return np.asarray(v + v.transpose(2, 3, 0, 1))


def _other(x: np.ndarray) -> np.ndarray:
    """x less itself with i and j exchanged, less the same of a and b."""
    x = x - x.transpose(1, 0, 2, 3)
    return np.asarray(x - x.transpose(0, 1, 3, 2))


@pytest.mark.parametrize("settings", [{"memory": "256MiB"}, {"arena": "32KiB"}])
def test_amplitudes_and_energy(settings: dict[str, str]) -> None:
    v = _integrals()
    o, u = slice(0, N), slice(N, N + M)
    e = np.concatenate([np.linspace(-3, -2, N), np.linspace(1, 3, M)])
    g, gap = v[o, o, u, u], e[:N, None, None, None] + e[:N, None, None] - e[N:, None] - e[N:]
    t = g / gap
    for _ in range(STEPS):
        r = (
            g
            + 0.5 * np.einsum("abcd,ijcd->ijab", v[u, u, u, u], t)
            + 0.5 * np.einsum("klij,klab->ijab", v[o, o, o, o], t)
        )
        r = r + _other(np.einsum("kbcj,ikac->ijab", v[o, u, u, o], t))
        r = r + 0.25 * np.einsum("klcd,ijcd,klab->ijab", g, t, t, optimize=True)
        r = r + 0.5 * _other(np.einsum("klcd,ikac,jlbd->ijab", g, t, t, optimize=True))
        x = np.einsum("klcd,ijac,klbd->ijab", g, t, t, optimize=True)
        r = r - 0.5 * (x - x.transpose(0, 1, 3, 2))
        x = np.einsum("klcd,ikab,jlcd->ijab", g, t, t, optimize=True)
        r = r - 0.5 * (x - x.transpose(1, 0, 2, 3))
        t = r / gap
    data = {"oo": v[o, o, o, o], "ov": v[o, u, u, o], "vv": v[u, u, u, u], "g": g, "eo": e[:N], "ev": e[N:]}
    found = et.compile(PROGRAM)(**{name: np.ascontiguousarray(x) for name, x in data.items()}, **settings)
    np.testing.assert_allclose(found["T"], t, rtol=1e-10, atol=1e-12)
    assert found["energy"] == pytest.approx(0.25 * np.sum(g * t), rel=1e-10)
