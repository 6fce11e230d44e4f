"""References of docs/examples/statistics."""

from __future__ import annotations

import numpy as np
import scipy.stats

from tests.examples.harness import Example


def pca(rng: np.random.Generator) -> Example:
    scales = np.array([9.0, 3, 1])
    X = rng.normal(size=(12, 3)) * scales @ np.linalg.qr(rng.normal(size=(3, 3)))[0] + 5
    begin = rng.normal(size=3)
    values, vectors = np.linalg.eigh(np.cov(X.T))
    V = vectors[:, ::-1][:, :2].T
    V = V * np.sign(V @ begin)[:, None]  # power iteration keeps the side on which it begins
    share = values[::-1][:2] / values.sum()
    scores = (X - X.mean(0)) @ V.T
    expected = {"V": V, "share": share, "scores": scores}
    return Example({"X": X, "begin": begin}, expected, {"k": 2}, looser=1e4)


def bootstrap(rng: np.random.Generator) -> Example:
    x, draw = rng.normal(size=9), rng.integers(9, size=(20, 9))
    means = x[draw].mean(1)
    expected = {"means": means, "error": np.std(means, ddof=1), "below": np.count_nonzero(means < 0)}
    return Example({"x": x, "draw": draw}, expected)


def density(rng: np.random.Generator) -> Example:
    x, grid = rng.normal(size=25), np.linspace(-3, 3, 11)
    return Example({"x": x, "grid": grid}, {"density": scipy.stats.gaussian_kde(x, 1.06 * 25**-0.2)(grid)})


def group_by(rng: np.random.Generator) -> Example:
    n, shops = 40, 4
    shop = rng.integers(shops - 1, size=n).astype(np.int32)  # the last shop sells nothing
    month = rng.integers(12, size=n).astype(np.int32)
    amount = rng.integers(1, 100, n).astype(np.float64)
    count, total = np.zeros((shops, 12), np.int64), np.zeros((shops, 12))
    for s, m, a in zip(shop, month, amount, strict=True):
        count[s, m] += 1
        total[s, m] += a
    rows = [np.where(shop == s, amount, -np.inf) for s in range(shops)]
    best = np.array([row.max() for row in rows])
    which = np.array([row.argmax() if best[s] > 0 else -1 for s, row in enumerate(rows)])
    average = np.array([amount[shop == s].mean() if (shop == s).any() else np.nan for s in range(shops)])
    expected = {"count": count, "total": total, "average": average, "best": best, "which": which}
    return Example({"shop": shop, "month": month, "amount": amount}, expected, {"shops": shops})


def regression(rng: np.random.Generator) -> Example:
    X = np.concatenate([np.ones((9, 1)), rng.normal(size=(9, 2))], 1)
    y = X @ [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=9)
    w, rss, *_ = np.linalg.lstsq(X, y, rcond=None)
    error = np.sqrt(np.diag(np.linalg.inv(X.T @ X)) * rss / 6)
    r2 = np.corrcoef(X @ w, y)[0, 1] ** 2
    return Example({"X": X, "y": y}, {"w": w, "error": error, "r2": np.asarray(r2)}, looser=1e3)


def rank_correlation(rng: np.random.Generator) -> Example:
    x = rng.integers(6, size=9).astype(np.float64)
    y = x + rng.integers(4, size=9)
    expected = {"spearman": scipy.stats.spearmanr(x, y).statistic, "kendall": scipy.stats.kendalltau(x, y).statistic}
    return Example({"x": x, "y": y}, expected)


def metropolis(rng: np.random.Generator) -> Example:
    proposal, decision = rng.normal(size=(6, 5)), rng.uniform(size=(6, 5))
    X, taken = np.zeros((6, 5)), 0
    for c in range(5):
        x = 0.0
        for t in range(6):
            y = x + proposal[t, c]
            ratio = np.exp((y**2 / 2 - y**4 / 4) - (x**2 / 2 - x**4 / 4))
            if decision[t, c] < ratio:
                x, taken = y, taken + 1
            X[t, c] = x
    expected = {"X": X, "square": np.asarray((X**2).mean()), "rate": np.asarray(taken / 30)}
    return Example({"proposal": proposal, "decision": decision}, expected)
