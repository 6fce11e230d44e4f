"""Planning a network of many tensors takes steps in proportion to its tensors, and few plans."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import opt_einsum
import pytest
from opt_einsum import paths

import einturnip as et
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import F64
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import OperandRef, ScalarCall
from einturnip.kernels.expr.blocked_space import choose_order
from einturnip.kernels.numpy.blocked import BlockedKernel
from einturnip.kernels.select import compile_tile
from einturnip.planner.lower import PlanLowering
from einturnip.tiling.price import TilingPrices
from einturnip.tuning.search import MAX_CLASS_PRICES


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often planning takes each of its steps, and the equivalence classes of the graph."""
    found: Counter[str] = Counter()
    greedy, of, lower = paths.greedy, TilingPrices.of, PlanLowering.lower

    def counted_greedy(*arguments: Any, **options: Any) -> Any:
        found["orders"] += 1
        return greedy(*arguments, **options)

    def counted_of(prices: TilingPrices, tiles: Any, capacity: int) -> float:
        found["prices"] += 1
        found["classes"] = len(prices.graph.groups)
        return of(prices, tiles, capacity)

    def counted_lower(*arguments: Any) -> Any:
        found["plans"] += 1
        return lower(*arguments)

    monkeypatch.setattr(paths, "greedy", counted_greedy)
    monkeypatch.setattr(TilingPrices, "of", counted_of)
    monkeypatch.setattr(PlanLowering, "lower", counted_lower)
    monkeypatch.setenv("EINTURNIP_PLANS", "off")
    return found


def random_network(n: int, labels: int) -> list[Any]:
    """Tensors of rank 3 on average, each label on two of them."""
    draw, held = np.random.default_rng(0), [list[int]() for _ in range(n)]
    for label in range(labels):
        for place in draw.choice(n, 2, replace=False):
            held[place].append(label)
    return [part for x in held if x for part in (draw.random((2,) * len(x)) / len(x), x)]


def test_a_chain_of_cheap_products_is_ordered_in_few_samples(counts: Counter[str]) -> None:
    draw, n = np.random.default_rng(0), 300
    operands = [part for k in range(n) for part in (draw.random((8, 8)) / 4, [k, k + 1])]
    assert np.allclose(et.einsum(*operands, [0, n]), np.linalg.multi_dot(operands[::2]))
    assert 4 <= counts["orders"] <= 24


def test_a_network_is_planned_by_few_prices_and_few_plans(counts: Counter[str]) -> None:
    operands = random_network(80, 100)
    assert np.allclose(et.einsum(*operands, []), opt_einsum.contract(*operands, []))
    assert counts["classes"] > 30
    assert counts["prices"] <= 4 * max(1, MAX_CLASS_PRICES // counts["classes"])
    assert counts["plans"] <= 8


def test_the_order_of_a_kernels_loops_is_chosen_once_for_blocks_of_all_sizes() -> None:
    join = ScalarCall("mul", (ScalarCall("exp", (OperandRef(0, F64),), F64), OperandRef(1, F64)), F64)
    einsum = Einsum(
        ("j", "i", "k"), (400, 300, 500), 1, ((1, 0, 2), (2, 0, 1)), (F64, F64), join, aggregation("sum", F64)
    )
    choose_order.cache_clear()
    kernel = compile_tile(einsum, einsum.bounds, "full", native=False)
    assert isinstance(kernel, BlockedKernel)
    sizes = {kernel.within(nbytes).workspace_nbytes for nbytes in (1 << 20, 1 << 17, 1 << 14)}
    found = choose_order.cache_info()
    assert len(sizes) > 1 and found.misses == 1 and found.hits >= 3
