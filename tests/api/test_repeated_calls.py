"""Calls found by the shapes of their arrays give the results of first calls."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import einturnip as et
from einturnip.api import call_cache, plan_cache

TEXT = "input x : f32[n], y : f32[n]\nz[i] = x[i] / y[i]\ns = sum[i] x[i]\noutput z\noutput s\n"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    call_cache._calls.clear()


def test_new_values_new_shapes_and_new_types_of_memory() -> None:
    program = et.compile(TEXT)
    for n in (4, 4, 6, 4):
        for step in (1, 2, 1):
            x, y = np.arange(n * step, dtype=np.float32)[::step] + n, np.full(n, 2, np.float32)
            found = program(x=x, y=y)
            np.testing.assert_array_equal(found["z"], x / 2)
            assert found["s"] == x.sum() and list(found) == ["z", "s"]
    assert len(call_cache._calls) >= 2


def test_results_of_calls_are_arrays_of_their_own() -> None:
    program, x = et.compile(TEXT), np.ones(3, np.float32)
    first, second = program(x=x, y=x), program(x=2 * x, y=x)
    assert first["z"][0] == 1 and second["z"][0] == 2


SHARED = {
    "one value twice": ("P[i,j] = exp(X[i,j])\nQ[i,j] = exp(X[i,j])\noutput P, Q\n", np.exp, np.exp),
    "an input and a copy": ("P[j,i] = X[i,j]\nQ[i,j] = X[i,j]\noutput P, Q, X\n", np.transpose, np.array),
    "folded twice": (
        "P[i,j] = X[i,j] - max[j] X[i,j]\nQ[i,j] = X[i,j] - max[j] X[i,j]\noutput P, Q\n",
        *2 * (lambda x: x - x.max(1, keepdims=True),),
    ),
}


@pytest.mark.parametrize("arena", [None, "1MiB", "8MiB"])
@pytest.mark.parametrize("name", SHARED)
def test_results_that_are_one_value_are_those_of_each_call(name: str, arena: str | None) -> None:
    text, p, q = SHARED[name]
    program = et.compile("input X : f64[n, m]\n" + text)
    for n in (3, 100, 300):
        for seed in range(4):
            x = np.random.default_rng(seed).random((n, n + 1))
            found = program(X=x, arena=arena)
            np.testing.assert_allclose(found["P"], p(x), rtol=1e-12)
            np.testing.assert_allclose(found["Q"], q(x), rtol=1e-12)
            if "X" in found:
                np.testing.assert_array_equal(found["X"], x)


@pytest.mark.parametrize("n", [3, 130, 400])
def test_arrays_of_the_other_byte_order_after_native_ones(n: int) -> None:
    program = et.compile("input X : f32[n, m]\nP[i,k] = X[i,j] * X[k,j]\ns[i] = max[j] X[i,j]\noutput P, s\n")
    for seed, order in enumerate("<><>><"):
        x = np.random.default_rng(seed).random((n, n + 1)).astype(order + "f4")
        found = program(X=x)
        np.testing.assert_allclose(found["P"], x.astype("f4") @ x.astype("f4").T, rtol=1e-4)
        np.testing.assert_array_equal(found["s"], x.max(1))


def test_what_happened_is_told_of_each_call() -> None:
    program, x = et.compile(TEXT), np.ones(3, np.float32)
    counts = [len(program(x=x, y=y).report.warnings) for y in (x, 0 * x, x)]
    assert counts[0] == counts[2] == 0 and counts[1] > 0


def test_wrong_calls_are_refused_after_right_ones() -> None:
    program, x = et.compile(TEXT), np.ones(3, np.float32)
    program(x=x, y=x)
    with pytest.raises(et.BindError):
        program(x=x)
    with pytest.raises(et.BindError):
        program(x=x, y=x, z=x)
    with pytest.raises(et.BindError):
        program(x=x, y=x.astype(object))


def test_arrays_of_one_shape_may_be_aligned_or_not() -> None:
    program, x = et.compile(TEXT), np.arange(8, dtype=np.float32)
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32)
    odd[...] = x
    for y in (x, odd, x, odd):
        assert program(x=y, y=np.full(8, 2, np.float32))["s"] == x.sum()


def test_a_call_is_known_no_longer_than_its_plan_is_kept() -> None:
    program, x = et.compile(TEXT), np.ones(3, np.float32)
    program(x=x, y=x)
    ((plan, _),) = call_cache._calls.values()
    assert plan() is not None and program(x=x, y=x)["s"] == 3
    plan_cache.forget()
    gc.collect()
    assert plan() is None, "what is known of a call holds its plan"
    assert program(x=2 * x, y=x)["s"] == 6 and program(x=x, y=x)["s"] == 3


def test_plans_used_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_cache.forget()
    program = et.compile(TEXT)

    def call(n: int) -> None:
        x = np.full(n, 2, np.float32)
        assert program(x=x, y=x)["s"] == 2 * n

    call(13)
    size = next(iter(plan_cache._plans.values())).nbytes
    monkeypatch.setattr(plan_cache, "MAX_NBYTES", 5 * size // 2)
    for n in (14, 13, 15, 13, 16):
        call(n)
    gc.collect()
    shapes = {
        n for key in call_cache._calls for n in range(13, 17) if call_cache._calls[key][0]() is not None and (n,) in key
    }
    assert shapes == {13, 16} and len(plan_cache._plans) == 2
    plan_cache.forget()


def test_threads_call_at_once() -> None:
    program, wrong = et.compile(TEXT), []

    def work(n: int) -> None:
        x = np.full(n % 3 + 2, n, np.float32)
        for _ in range(200):
            result = program(x=x, y=x)
            if result["s"] != x.sum() or (result["z"] != 1).any():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
