"""Calls of std.stats."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats as ss

from tests.std.harness import Call

rng = np.random.default_rng(13)
X = rng.normal(size=(9, 4)) * [1, 2, 3, 4] + 1
x = rng.normal(size=11)
w = rng.uniform(size=4)
whole = rng.integers(5, size=(3, 8)).astype(np.float64)
k = rng.integers(3, size=9)  # of 4 groups: the last is empty
a, b = rng.integers(3, size=20), rng.integers(2, size=20)
means = np.stack([X[k == c].mean(0) if c < 3 else np.full(4, np.nan) for c in range(4)])


def stats(equation: str, expected: Any, looser: float = 1, **inputs: Any) -> Call:
    function = equation.split("= ")[1].split("(")[0].split(" ")[-1]
    return Call("stats", function, equation, inputs, {equation.split("=")[0].split("[")[0].strip(): expected}, looser)


CALLS = [
    stats("m[i] = average(X[i,j])", X.mean(1), X=X),
    stats("v[i] = variance(X[i,j])", X.var(1), X=X),
    stats("v = variance(x[i], 1)", x.var(ddof=1), x=x),
    stats("v = variance(x[i] + 10, ddof = 1)", x.var(ddof=1), 10, x=x),
    stats("s[i] = deviation(X[i,j])", X.std(1), X=X),
    stats("s = deviation(x[i], 1)", x.std(ddof=1), x=x),
    stats("s[i] = skewness(X[i,j])", ss.skew(X, axis=1), 10, X=X),
    stats("s[i] = kurtosis(X[i,j])", ss.kurtosis(X, axis=1), 10, X=X),
    stats("m[i] = weighted_mean(X[i,j], w[j])", np.average(X, 1, w), X=X, w=w),
    stats("r[i,j] = ranks(X[i,j])", ss.rankdata(whole, "min", axis=1).astype(np.int64) - 1, X=whole),
    stats("q[i] = order_statistic(X[i,j], 3)", np.sort(whole, 1)[:, 3], X=whole),
    stats("q = order_statistic(x[i], 5)", np.median(x), x=x),
    stats("S[i,j] = running_sum(X[i,j], 3)", whole.cumsum(1), X=whole),
    stats("S = sum[i] running_sum(x[i], 4)", x.cumsum().sum(), 10, x=x),
    stats("S[i,j] = running_max(X[i,j], 3)", np.maximum.accumulate(whole, 1), X=whole),
    stats("Z[i,j] = standardise(X[i,j])", ss.zscore(X), 10, X=X),
    stats("C[i,j] = covariance(X[n,i])", np.cov(X.T), 10, X=X),
    stats("C[i,j] = covariance(X[n,i], ddof = 0)", np.cov(X.T, ddof=0), 10, X=X),
    stats("C[i,j] = correlation(X[n,i])", np.corrcoef(X.T), 10, X=X),
    stats("c[g] = group_count(k[n], 4)", np.bincount(k, minlength=4), k=k),
    stats("Y[g,d] = group_sum(X[n,d], k[n], 4)", np.eye(4)[k].T @ X, X=X, k=k),
    stats("Y[g,d] = group_mean(X[n,d], k[n], 4)", means, X=X, k=k),
    stats("h[c] = histogram(x[n], -1, 1, 7)", np.histogram(x, 7, (-1, 1))[0], x=x),
    stats("C[i,j] = contingency(a[n], b[n], 3, 2)", ss.contingency.crosstab(a, b).count, a=a, b=b),
]
