"""References of docs/examples/machine_learning."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.optimize
import scipy.signal
import scipy.spatial
import scipy.special
from sklearn.mixture import GaussianMixture

from tests.examples.harness import Array, Example


def f32(x: Array) -> Array:
    return np.asarray(x, np.float32)


def attention(rng: np.random.Generator) -> Example:
    Q, K, V = (f32(rng.normal(size=(2, 3, 5, n))) for n in (4, 4, 6))
    out = np.zeros((2, 3, 5, 6))
    for b, h, s in np.ndindex(2, 3, 5):
        weights = scipy.special.softmax(K[b, h, : s + 1].astype(np.float64) @ Q[b, h, s] / 2)
        out[b, h, s] = weights @ V[b, h, : s + 1]
    return Example({"Q": Q, "K": K, "V": V}, {"O": f32(out)})


def transformer(rng: np.random.Generator) -> Example:
    b, s, v, d, h, g, f, layers = 2, 3, 4, 4, 2, 1, 2, 2
    wide = d // h
    sizes = {
        "E": (v, d),
        "gain1": (layers, d),
        "Wq": (layers, d, d),
        "Wk": (layers, d, wide * g),
        "Wv": (layers, d, wide * g),
        "Wo": (layers, d, d),
        "gain2": (layers, d),
        "W1": (layers, d, f),
        "W3": (layers, d, f),
        "W2": (layers, f, d),
        "gain": (d,),
    }
    weights = {name: f32(rng.normal(size=shape) / 2) for name, shape in sizes.items()}
    ids, following = rng.integers(v, size=(2, b, s))
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def rms(x: Array, gain: Array) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain

    def rotate(x: Array) -> Array:  # as complex numbers
        half = x.shape[-1] // 2
        turn = np.exp(1j * np.arange(s)[:, None] * 10000.0 ** (-np.arange(half) / half))
        z = (x[..., :half] + 1j * x[..., half:]) * turn
        return np.concatenate([z.real, z.imag], -1)

    def heads(x: Array, n: int) -> Array:
        return x.reshape(b, s, n, wide).transpose(0, 2, 1, 3)

    x = w["E"][ids]
    for layer in range(layers):
        n = rms(x, w["gain1"][layer])
        q = rotate(heads(n @ w["Wq"][layer], h))
        k = np.repeat(rotate(heads(n @ w["Wk"][layer], g)), h // g, 1)
        value = np.repeat(heads(n @ w["Wv"][layer], g), h // g, 1)
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(wide) + np.triu(np.full((s, s), -np.inf), 1)
        mixed = scipy.special.softmax(scores, -1) @ value
        x = x + mixed.transpose(0, 2, 1, 3).reshape(b, s, d) @ w["Wo"][layer]
        n = rms(x, w["gain2"][layer])
        gate = n @ w["W1"][layer]
        x = x + (gate * scipy.special.expit(gate) * (n @ w["W3"][layer])) @ w["W2"][layer]
    logits = rms(x, w["gain"]) @ w["E"].T
    loss = -np.take_along_axis(scipy.special.log_softmax(logits, -1), following[..., None], -1).mean()
    inputs = {"ids": ids, "next": following, **weights}
    return Example(inputs, {"logits": f32(logits), "loss": f32(loss)}, {"h": h, "g": g}, looser=10)


def kmeans(rng: np.random.Generator) -> Example:
    X = np.concatenate([rng.normal(size=(5, 2)) + centre for centre in ([0, 0], [6, 1], [1, 7])])
    begin = np.concatenate([X[[0, 1, 10]], [[1000.0, 1000.0]]])  # the last is near to nobody
    C = begin.copy()
    for _ in range(3):
        near = scipy.spatial.distance.cdist(X, C).argmin(1)
        for k in set(near):
            C[k] = X[near == k].mean(0)
    near = scipy.spatial.distance.cdist(X, C).argmin(1)
    inertia = (scipy.spatial.distance.cdist(X, C).min(1) ** 2).sum()
    return Example({"X": X, "C": begin}, {"C": C, "near": near, "inertia": np.asarray(inertia)}, {"steps": 3})


def nearest_neighbour(rng: np.random.Generator) -> Example:
    X, Q = f32(rng.normal(size=(20, 3))), f32(rng.normal(size=(7, 3)))
    label = rng.integers(4, size=20).astype(np.int32)
    distance, nearest = scipy.spatial.KDTree(X).query(Q)
    return Example({"X": X, "Q": Q, "label": label}, {"guess": label[nearest], "distance": f32(distance)})


def logistic_regression(rng: np.random.Generator) -> Example:
    X, y, begin = rng.normal(size=(8, 3)), rng.integers(3, size=8), rng.normal(size=(3, 3))

    def loss_at(w: Array) -> float:
        return float(-scipy.special.log_softmax(X @ w.reshape(3, 3), -1)[np.arange(8), y].mean())

    W = begin
    for _ in range(3):
        W = W - 0.5 * scipy.optimize.approx_fprime(W.ravel(), loss_at, 1e-7).reshape(3, 3)
    accuracy = ((X @ W).argmax(1) == y).mean()
    expected = {"W": W, "loss": np.asarray(loss_at(W)), "accuracy": np.asarray(accuracy)}
    return Example({"X": X, "y": y, "W": begin}, expected, {"steps": 3}, looser=1e5)


def graph_network(rng: np.random.Generator) -> Example:
    v = 5
    pairs = np.array([(i, j) for i in range(v) for j in range(i) if rng.random() < 0.4])
    source, target = np.concatenate([pairs, pairs[:, ::-1]]).T.copy()
    X, W1, W2 = (f32(rng.normal(size=shape)) for shape in [(v, 3), (3, 2), (2, 3)])
    A = np.eye(v)
    A[source, target] = 1
    root = np.diag(1 / np.sqrt(A.sum(0)))
    A = root @ A @ root
    P = scipy.special.softmax(A @ np.maximum(A @ X @ W1, 0) @ W2, -1)
    return Example({"X": X, "source": source, "target": target, "W1": W1, "W2": W2}, {"P": f32(P)})


def lstm(rng: np.random.Generator) -> Example:
    b, t, d, m = 2, 4, 3, 5
    X, W, U, bias = (f32(rng.normal(size=shape)) for shape in [(b, t, d), (4 * m, d), (4 * m, m), (4 * m,)])
    H, h, c = np.zeros((b, t, m)), np.zeros((b, m)), np.zeros((b, m))
    for k in range(t):
        enter, forget, new, leave = np.split(X[:, k] @ W.T + h @ U.T + bias, 4, axis=1)
        c = scipy.special.expit(forget) * c + scipy.special.expit(enter) * np.tanh(new)
        h = H[:, k] = scipy.special.expit(leave) * np.tanh(c)
    return Example({"X": X, "W": W, "U": U, "bias": bias}, {"H": f32(H)})


def convnet(rng: np.random.Generator) -> Example:
    X, W1, W2, W = (f32(rng.normal(size=s)) for s in [(1, 2, 7, 6), (2, 2, 3, 3), (2, 2, 3, 3), (2, 3)])
    first = np.stack([[correlate(x, kernel, "same") for kernel in W1] for x in X])
    A = np.maximum(first, 0)[:, :, :6, :]
    B = A.reshape(1, 2, 3, 2, 3, 2).max((3, 5))
    C = np.maximum(np.stack([[correlate(x, kernel, "valid") for kernel in W2] for x in B]), 0)
    P = scipy.special.softmax(C.mean((2, 3)) @ W, -1)
    return Example({"X": X, "W1": W1, "W2": W2, "W": W}, {"P": f32(P)})


def correlate(x: Array, kernel: Array, mode: str) -> Array:
    channels = zip(x.astype(np.float64), kernel.astype(np.float64), strict=True)
    return np.asarray(sum(scipy.signal.correlate2d(c, k, mode) for c, k in channels))


def mixture_of_experts(rng: np.random.Generator) -> Example:
    s, d, e, f = 6, 4, 5, 3
    X, R, W1, W2 = (f32(rng.normal(size=shape)) for shape in [(s, d), (d, e), (e, d, f), (e, f, d)])
    Y, load = np.zeros((s, d)), np.zeros(e, np.int64)
    for i, x in enumerate(X.astype(np.float64)):
        scores = x @ R
        two = np.argsort(-scores)[:2]
        load[two[0]] += 1
        for expert, weight in zip(two, scipy.special.softmax(scores[two]), strict=True):
            inner = x @ W1[expert]
            Y[i] += weight * ((inner * scipy.special.expit(inner)) @ W2[expert])
    return Example({"X": X, "R": R, "W1": W1, "W2": W2}, {"Y": f32(Y), "load": load})


def gaussian_mixture(rng: np.random.Generator) -> Example:
    X = np.concatenate([rng.normal(size=(15, 2)), rng.normal(size=(10, 2)) * 0.5 + [4, 3]])
    mu, var, weight = X[[0, 20]], np.ones((2, 2)), np.array([0.5, 0.5])
    begin = {"weights_init": weight, "means_init": mu, "precisions_init": 1 / var}
    model = GaussianMixture(2, covariance_type="diag", reg_covar=0, max_iter=3, tol=0, **begin)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three steps do not converge
        model.fit(X)
    expected = {
        "mu": model.means_,
        "var": model.covariances_,
        "weight": model.weights_,
        "likelihood": np.asarray(model.lower_bound_),
    }
    return Example({"X": X, "mu": mu, "var": var, "weight": weight}, expected, {"steps": 3}, looser=1e4)


def gaussian_process(rng: np.random.Generator) -> Example:
    X, Z, y = rng.normal(size=(6, 2)), rng.normal(size=(3, 2)), rng.normal(size=6)

    def kernel(a: Array, b: Array) -> Array:
        return np.asarray(np.exp(-0.5 * scipy.spatial.distance.cdist(a, b, "sqeuclidean")))

    mean = kernel(Z, X) @ np.linalg.solve(kernel(X, X) + 0.01 * np.eye(6), y)
    return Example({"X": X, "y": y, "Z": Z}, {"mean_at": mean}, looser=1e4)


def boosting_stump(rng: np.random.Generator) -> Example:
    X = rng.normal(size=(12, 3))
    y = np.where(X[:, 1] > 0.3, 2.0, -1.0) + 0.1 * rng.normal(size=12)
    best = (np.inf, 0, 0.0)
    for feature in range(3):
        for threshold in X[:, feature]:
            low = X[:, feature] <= threshold
            error = sum(((y[side] - y[side].mean()) ** 2).sum() for side in (low, ~low) if side.any())
            best = min(best, (error, feature, threshold))
    expected = {"feature": np.asarray(best[1]), "threshold": np.asarray(best[2])}
    return Example({"X": X, "y": y}, expected)
