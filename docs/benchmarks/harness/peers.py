"""The alternatives in memory: each peer at its best, compiled and on all cores if it can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from harness.cases import BenchCase

Array = np.ndarray[Any, np.dtype[Any]]
Work = Callable[[], Any]

# The package of each peer.
PEERS = {"numpy": "numpy", "opt_einsum": "opt_einsum", "numexpr": "numexpr", "torch": "torch", "torch.compile": "torch",
         "jax": "jax"}  # fmt: skip


def present() -> list[str]:
    """The peers that can be imported here."""
    return [name for name, package in PEERS.items() if find_spec(package) is not None]


def release(name: str) -> str:
    """The version of a contender's package."""
    try:
        return version(PEERS.get(name, "einturnip"))
    except PackageNotFoundError:
        return "?"


def work(name: str, case: BenchCase, arrays: Sequence[Array]) -> Work | None:
    """A function for one call of a contender, with a new result; None if it lacks the work."""
    match name:
        case "numpy":
            formula = _numpy(np, case)
            return None if formula is None else lambda: formula(*arrays)
        case "opt_einsum":
            if case.kind != "einsum":
                return None
            expression = import_module("opt_einsum").contract_expression(case.detail, *case.shapes.values())
            return lambda: expression(*arrays)
        case "numexpr":
            return _numexpr(case, arrays)
        case "torch" | "torch.compile":
            return _torch(case, arrays, name == "torch.compile")
        case "jax":
            return _jax(case, arrays)
        case _:
            return _einturnip(name, case, arrays)


def _einturnip(name: str, case: BenchCase, arrays: Sequence[Array]) -> Work:
    import einturnip as et

    program = et.compile(case.program)
    given = dict(zip(case.shapes, arrays, strict=True))
    exact = not name.endswith("exact=False")
    return lambda: program(data=given, exact=exact)["Z"]


def _numpy(xp: Any, case: BenchCase) -> Callable[..., Any] | None:
    """The formula in terms of NumPy, which are also JAX's."""
    match case.kind:
        case "einsum":
            if xp is np:
                return lambda *a: np.einsum(case.detail, *a, optimize=True)
            return lambda *a: xp.einsum(case.detail, *a)
        case "attention" | "causal_attention":
            return lambda q, k, v: _attention(xp, q, k, v, case.kind == "causal_attention")
        case "l2":
            return lambda x, y: (x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * (x @ y.T)
        case "max_plus":
            return _max_plus if xp is np else lambda x, y: (x[:, :, None] + y[None]).max(1)
        case "logsumexp":
            return lambda x: xp.log(xp.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1)
        case "softmax":
            return lambda x: _softmax(xp, x)
        case "layernorm":
            return lambda x, g, b: (x - x.mean(1, keepdims=True)) / xp.sqrt(x.var(1, keepdims=True) + 1e-5) * g + b
        case "swiglu":
            return lambda x, y: x / (1 + xp.exp(-x)) * y
        case "row_sum" | "column_sum":
            return lambda x: x.sum(1 if case.kind == "row_sum" else 0)
        case "transpose":
            if xp is np:
                return lambda x: np.ascontiguousarray(x.transpose([int(c) for c in case.detail]))
            return lambda x: x.transpose([int(c) for c in case.detail]) * 1.0
        case "gather":
            return lambda x, ids: x[ids]
        case "mlp":
            return lambda x, a, p, b, q: xp.maximum(x @ a + p, 0) @ b + q
    return None


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(xp: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    s = q @ k.swapaxes(-1, -2) * np.float32(1 / math.sqrt(q.shape[-1]))
    if causal:
        s = xp.where(xp.tri(s.shape[-2], s.shape[-1], dtype=bool), s, np.float32(-np.inf))
    return _softmax(xp, s) @ v


def _max_plus(x: Array, y: Array) -> Array:
    best: Array = x[:, :1] + y[0]
    for k in range(1, len(y)):
        np.maximum(best, x[:, k, None] + y[k], out=best)
    return best


def _numexpr(case: BenchCase, arrays: Sequence[Array]) -> Work | None:
    import_module("numexpr")
    evaluate = import_module("numexpr").evaluate
    if case.kind == "swiglu":
        x, y = arrays
        return lambda: evaluate("x / (1 + exp(-x)) * y", {"x": x, "y": y})
    if case.kind == "softmax":
        (x,) = arrays

        def softmax() -> Any:
            e = evaluate("exp(x - m)", {"x": x, "m": x.max(1, keepdims=True)})
            return evaluate("e / s", {"e": e, "s": e.sum(1, keepdims=True)})

        return softmax
    return None


def _torch(case: BenchCase, arrays: Sequence[Array], compiled: bool) -> Work | None:
    torch = import_module("torch")
    functional = import_module("torch.nn.functional")
    torch.set_grad_enabled(False)
    given = [torch.from_numpy(a) for a in arrays]
    formula = _torch_formula(torch, functional, case)
    if formula is None or (compiled and case.kind in ("einsum", "transpose", "gather", "mlp")):
        return None
    run = torch.compile(formula) if compiled else formula
    return lambda: run(*given)


def _torch_formula(torch: Any, functional: Any, case: BenchCase) -> Callable[..., Any] | None:
    match case.kind:
        case "einsum":
            return lambda *a: torch.einsum(case.detail, *a).contiguous()
        case "attention" | "causal_attention":
            causal = case.kind == "causal_attention"
            return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        case "l2":
            return lambda x, y: torch.cdist(x, y).square()
        case "max_plus":
            return lambda x, y: (x[:, :, None] + y[None]).amax(1)
        case "logsumexp":
            return lambda x: torch.logsumexp(x, 1)
        case "softmax":
            return lambda x: torch.softmax(x, 1)
        case "layernorm":
            return lambda x, g, b: functional.layer_norm(x, (x.shape[1],), g, b)
        case "swiglu":
            return lambda x, y: functional.silu(x) * y
        case "row_sum" | "column_sum":
            return lambda x: x.sum(1 if case.kind == "row_sum" else 0)
        case "transpose":
            return lambda x: x.permute([int(c) for c in case.detail]).contiguous()
        case "gather":
            return lambda x, ids: x[ids]
        case "mlp":
            return lambda x, a, p, b, q: torch.addmm(q, torch.addmm(p, x, a).relu_(), b)
    return None


def _jax(case: BenchCase, arrays: Sequence[Array]) -> Work | None:
    jax = import_module("jax")
    formula = _numpy(import_module("jax.numpy"), case)
    if formula is None:
        return None
    given = [jax.device_put(a) for a in arrays]
    run = jax.jit(formula)
    return lambda: run(*given).block_until_ready()
