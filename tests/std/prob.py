"""Calls of std.prob."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import scipy.special as sp
import scipy.stats as ss

from tests.std.harness import Call

rng = np.random.default_rng(15)
x = np.linspace(-3, 3, 13)
P, Q = rng.dirichlet(np.ones(5), 3), rng.dirichlet(np.ones(5), 3)
P[0, 2] = 0
P[0] /= P[0].sum()
A, B = rng.normal(size=(3, 4)) * 100, rng.normal(size=(4, 2)) * 100
states, times = 3, 4
initial, transition = (np.log(rng.dirichlet(np.ones(states), m)) for m in (None, states))
seen = rng.normal(size=(times, states))
HMM = {"i": initial, "m": transition, "o": seen}
scores = {}  # of every path
for path in product(range(states), repeat=times):
    moves = sum(transition[s, r] for s, r in zip(path, path[1:], strict=False))
    scores[path] = initial[path[0]] + moves + seen[np.arange(times), path].sum()
total = sp.logsumexp(list(scores.values()))
at = np.zeros((times, states))
for path, score in scores.items():
    at[np.arange(times), path] += np.exp(score - total)
best = max(scores, key=lambda path: scores[path])


def prob(equation: str, expected: Any, looser: float = 1, **inputs: Any) -> Call:
    function = equation.split("= ")[1].split("(")[0]
    return Call("prob", function, equation, inputs, {equation.split("=")[0].split("[")[0].strip(): expected}, looser)


CALLS = [
    prob("p[i] = normal_logpdf(x[i])", ss.norm.logpdf(x), x=x),
    prob("p[i] = normal_logpdf(x[i], mu = 1, sigma = 2)", ss.norm.logpdf(x, 1, 2), x=x),
    prob("p[i] = normal_cdf(x[i])", ss.norm.cdf(x), x=x),
    prob("p[i] = normal_cdf(x[i], 1, 2)", ss.norm.cdf(x, 1, 2), x=x),
    prob("h[i] = entropy(P[i,j])", ss.entropy(P, axis=1), P=P),
    prob("h[i] = kl_divergence(P[i,j], Q[i,j])", ss.entropy(P, Q, axis=1), P=P, Q=Q),
    prob("C[i,j] = log_matmul(A[i,k], B[k,j])", sp.logsumexp(A[:, :, None] + B, 1), A=A, B=B),
    prob("y[i] = log_matvec(A[i,k], x[k])", sp.logsumexp(A + B[:, 0], 1), A=A, x=B[:, 0].copy()),
    prob("p = forward(i[s], m[s,r], o[t,s])", total, **HMM),
    prob("p[t,s] = posterior(i[s], m[s,r], o[t,s])", at, 10, **HMM),
    Call(
        "prob",
        "viterbi",
        "path[t], best = viterbi(i[s], m[s,r], o[t,s])",
        HMM,
        {"path": np.array(best), "best": scores[best]},
    ),
]
