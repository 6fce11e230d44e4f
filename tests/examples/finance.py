"""References of docs/examples/finance."""

from __future__ import annotations

from functools import cache

import numpy as np
import scipy.stats

from tests.examples.harness import Example


def binomial_option(rng: np.random.Generator) -> Example:
    steps, S, strike, rate, sigma = 6, 100.0, 105.0, 0.03, 0.2
    up = np.exp(sigma * np.sqrt(1 / steps))
    growth = np.exp(rate / steps)
    p = (growth - 1 / up) / (up - 1 / up)

    @cache
    def value(k: int, rises: int) -> float:
        exercise = max(strike - S * up ** (2 * rises - k), 0.0)
        if k == steps:
            return exercise
        return max(exercise, (p * value(k + 1, rises + 1) + (1 - p) * value(k + 1, rises)) / growth)

    return Example({}, {"price": np.asarray(value(0, 0))}, {"steps": steps})


def black_scholes(rng: np.random.Generator) -> Example:
    strike, years = np.array([80.0, 100, 120]), np.array([0.5, 1])
    S, rate, sigma = 100.0, 0.02, 0.25
    K, T = strike[:, None], years
    law = scipy.stats.lognorm(sigma * np.sqrt(T), scale=S * np.exp((rate - sigma**2 / 2) * T))  # of the price at T
    partial = S * np.exp(rate * T) * law.sf(K * np.exp(-(sigma**2) * T))  # its mean above K
    call = np.exp(-rate * T) * (partial - K * law.sf(K))
    delta = law.sf(K * np.exp(-(sigma**2) * T))
    vega = np.exp(-rate * T) * K * np.sqrt(T) * law.pdf(K) * K * sigma * np.sqrt(T)
    return Example({"strike": strike, "years": years}, {"call": call, "delta": delta, "vega": vega}, looser=100)


def asian_option(rng: np.random.Generator) -> Example:
    Z = rng.normal(size=(20, 5))
    payoff = []
    for path in Z:
        pair = []
        for z in (path, -path):
            price = 100 * np.exp(np.cumsum((0.01 - 0.045) / 5 + 0.3 * np.sqrt(0.2) * z))
            pair.append(max(price.mean() - 100, 0))
        payoff.append(np.exp(-0.01) * np.mean(pair))
    return Example({"Z": Z}, {"price": np.mean(payoff), "error": np.std(payoff, ddof=1) / np.sqrt(20)})


def portfolio(rng: np.random.Generator) -> Example:
    returns = rng.normal(size=(15, 3)) @ np.diag([0.01, 0.02, 0.015])
    weight = np.array([0.5, 0.3, 0.2])
    C = np.cov(returns.T)
    variance = weight @ C @ weight
    x = np.linalg.inv(C).sum(1)
    expected = {
        "volatility": np.sqrt(252 * variance),
        "share": weight * (C @ weight) / variance,
        "least": x / x.sum(),
    }
    return Example({"returns": returns, "weight": weight}, expected, looser=1e3)


def value_at_risk(rng: np.random.Generator) -> Example:
    returns, position = rng.normal(size=(15, 3)), np.array([10.0, 20, 5])
    worst = np.sort(-returns @ position)[-3:]
    expected = {"value_at_risk": worst.min(), "shortfall": worst.mean()}
    return Example({"returns": returns, "position": position}, expected, {"worst": 3})
