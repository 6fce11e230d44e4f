"""The lower bound on bytes moved: never above what a run counts, and as tight as the derivation allows."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.cli.main import run
from einturnip.core.errors import CapacityError
from einturnip.eingraph.types import EinGraph
from einturnip.ir.einsum import Index
from einturnip.planner.io_lower_bound import IN, OUT, io_lower_bound
from einturnip.testing.strategies import DrawnCase, programs
from tests.drawn import examples
from tests.taskgraph.graphs import Maker

# Statements over matrices A and B [n, n], a Y of [4, 4, n] and indices ids[n]; most read A twice, or only in part.
STATEMENTS = (
    "T[i, j] = sum[k] A[i, k] * B[k, j]",
    "T[i, j] = sum[k] A[k, i] * A[k, j]",
    "T[i, j] = sum[k] A[i, k] * A[j, k]",
    "T[i, j] = sum[k] A[i, k] * A[k, j]",
    "T[i, j] = sum[k] A[i, k] * B[j, k] + A[j, i]",
    "T[i, j] = sum[p, q] Y[p, q, i] * Y[q, p, j]",
    "T[i, j] = sum[p, q] Y[p, q, i] * Y[p, q, j]",
    "T[i, j] = sum[k: 4] A[i, k] * B[k, j]",
    "T[i, j] = sum[k: 3] A[i, k] * A[j, k + 2]",
    "T[i, j] = A[i, j] + B[j, i]",
    "T[i, j] = A[i, i] * B[i, j]",
    "T[i: n, j: n] = A[i // 2, j] * B[i % 3, j]",
    "T[i, j] = A[i - 1 ? 0, j] + A[i, j + 1 ? 0]",
    "T[i, j] = A[(i + 1) % n, j] - A[i, j]",
    "T[i, j] = sum[k] where(k <= i, A[i, k], 0) * B[k, j]",
    "T[i, j] = where(i < 3, A[i, j], B[j, i])",
    "T[i, j] = where(j <= i, A[i, j], 0)",
    "T[i, j] = A[ids[i], j]",
    "T[ids[s]: n, j] = sum[s] A[s, j]",
    "T[i, j] = A[0, j] * A[i, 1]",
    "T[i, j] = exp(A[i, j] - max[k] A[i, k])",
    "T[i, j] = min[k] (A[i, k] + A[k, j])",
    "T[i, j] = A[i, j]\nfor t in 0 .. 3 {\n  T[i, j] = sum[k] T[i, k] * A[k, j]\n}",
    "T[i, j] = A[i, j]\nfor t in 0 .. 3 {\n  T[i, j] = T[i - 1 ? 0, j] + T[i, j]\n}",
)
ARENAS = ("1KiB", "2KiB", "3KiB", "4KiB", "6KiB", "8KiB", "12KiB", "16KiB", "24KiB", "32KiB", "64KiB", "1MiB")


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, int]:
    """A program of one to four statements over two inputs and what is computed on the way, and its n."""
    n = draw(st.integers(5, 24))
    known, lines = ["P", "Q"], []
    for number in range(draw(st.integers(1, 4))):
        text = draw(st.sampled_from(STATEMENTS))
        names = {"A": draw(st.sampled_from(known[::-1])), "B": draw(st.sampled_from(known)), "T": f"T{number}"}
        lines.append("".join(names.get(c, c) for c in text))
        known.append(f"T{number}")
    made = known[2:]
    if draw(st.booleans()):
        lines.append(f"R[j] = {made[-1]}[{draw(st.integers(0, 4))}, j]")
        made = [*made[:-1], "R"]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, unique=True))
    head = ["dim n", "input P : f64[n, n]", "input Q : f64[n, n]", "input Y : f64[4, 4, n]", "input ids : i32[n]"]
    return "\n".join([*head, *lines, *(f"output {name}" for name in outputs)]) + "\n", n


def require_at_least_the_bound(moved: dict[str, int], bound: dict[str, int]) -> None:
    assert set(bound) == set(moved) == {IN, OUT}
    for link, nbytes in moved.items():
        assert nbytes >= bound[link] >= 0, (link, moved, bound)


def check_chain(drawn: tuple[str, int], arena: str) -> None:
    text, n = drawn
    rng = np.random.default_rng(n)
    arrays: dict[str, Any] = {"P": rng.integers(-2, 3, (n, n)).astype("f8"), "Q": rng.integers(-2, 3, (n, n)) * 1.0}
    arrays |= {"Y": rng.integers(-2, 3, (4, 4, n)) * 1.0, "ids": rng.integers(0, n, n).astype("i4")}
    program = et.compile(text)
    try:
        report = program(**arrays, arena=arena).report
    except CapacityError:
        return
    require_at_least_the_bound(report.link_bytes, report.link_bytes_lower_bound)


def check_case(case: DrawnCase, arena: str) -> None:
    program = et.compile(case.text)
    try:
        report = program(**case.inputs, dims=case.dims, arena=arena).report
    except (CapacityError, et.EinturnipError):
        return
    require_at_least_the_bound(report.link_bytes, report.link_bytes_lower_bound)


QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=examples(60), **QUIET)
@given(chains(), st.sampled_from(ARENAS))
def test_no_run_moves_less_than_the_bound(drawn: tuple[str, int], arena: str) -> None:
    check_chain(drawn, arena)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=1000, **QUIET)
@given(chains(), st.sampled_from(ARENAS))
def test_no_run_moves_less_than_the_bound_drawn_at_length(drawn: tuple[str, int], arena: str) -> None:
    check_chain(drawn, arena)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=500, **QUIET)
@given(programs(), st.sampled_from(("256B", "512B", "1KiB", "64KiB")))
def test_no_run_of_the_whole_language_moves_less_than_the_bound(case: DrawnCase, arena: str) -> None:
    check_case(case, arena)


def product(m: int, n: int, k: int, shared: bool = False) -> EinGraph:
    make = Maker()
    a = make.input(k, m)
    b = a if shared else make.input(k, n)
    return make.graph(make.einsum((m, n, k), 2, [(a, (2, 0)), (b, (2, 1))], "sum"))


@pytest.mark.parametrize("share", [4, 16, 64])
def test_the_bound_of_a_product_is_that_of_hong_and_kung(share: int) -> None:
    n = 1024
    arena = 3 * n * n * 8 // share
    elements = arena / 8
    bound = io_lower_bound(product(n, n, n), arena)
    expected = max(2 * n**3 / math.sqrt(elements) + elements, 3 * n * n)
    assert bound[OUT] == 8 * n * n
    assert 0.98 * expected <= sum(bound.values()) / 8 <= expected * (1 + 1e-9)


def test_a_symmetric_product_has_half_the_products_and_the_root_of_two_less_to_read_for_each() -> None:
    n, arena = 2048, 8 * 4096
    whole, symmetric = io_lower_bound(product(n, n, n), arena), io_lower_bound(product(n, n, n, shared=True), arena)
    ratio = (whole[IN] + 8 * n * n) / (symmetric[IN] + 8 * n * (n - 1) // 2)
    assert ratio == pytest.approx(2 * math.sqrt(2), rel=0.01)


def best_by_stationary_operand(m: int, n: int, k: int, elements: int) -> int:
    """Elements read where a p x k block of A stays and C is made column by column, p as large as there is room."""
    p = min(m, (elements - k) // (k + 1))
    return m * k + math.ceil(m / p) * k * n


@pytest.mark.parametrize(("m", "n", "k", "elements"), [(10_000, 10_000, 10, 10_000), (4096, 4096, 64, 4096)])
def test_a_schedule_that_keeps_an_operand_reads_no_less_than_the_bound(m: int, n: int, k: int, elements: int) -> None:
    """Where K is small, 2MNK/sqrt(S) is more than such a schedule reads, so it bounds nothing."""
    read = best_by_stationary_operand(m, n, k, elements)
    assert read < 2 * m * n * k / math.sqrt(elements)
    assert io_lower_bound(product(m, n, k), 8 * elements)[IN] <= 8 * read


def test_the_gram_matrix_of_the_report() -> None:
    """X [3000, 2000] read once is enough: the bound of distinct operands would be larger."""
    make = Maker()
    x = make.input(3000, 2000)
    graph = make.graph(make.einsum((2000, 2000, 3000), 2, [(x, (2, 0)), (x, (2, 1))], "sum"))
    assert io_lower_bound(graph, 2 * 96 << 20)[IN] == 8 * 3000 * 2000


def brute_force(index: Index, bounds: tuple[int, ...], size: int) -> int:
    found = set()
    for point in itertools.product(*map(range, bounds)):
        value = (index.offset + sum(c * point[q] for q, c in index.terms)) // index.divisor
        value = value % index.modulus if index.modulus else value
        found.add(min(max(value, 0), size - 1) if index.clamped else value)
    return len(found)


@settings(max_examples=examples(200), **QUIET)
@given(st.data())
def test_no_more_elements_are_needed_than_an_index_reads(data: st.DataObject) -> None:
    bounds = (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6)))
    terms = tuple((q, c) for q in (0, 1) if (c := data.draw(st.integers(-4, 4))))
    lowest = sum(min(0, c * (bounds[q] - 1)) for q, c in terms)
    clamped = data.draw(st.booleans())
    index = Index(
        terms,
        -lowest + (data.draw(st.integers(-5, 5)) if clamped else data.draw(st.integers(0, 5))),
        1 if clamped else data.draw(st.integers(1, 3)),
        0 if clamped else data.draw(st.sampled_from([0, 3, 7])),
        clamped,
    )
    reach = sum(abs(c) * (bounds[q] - 1) for q, c in terms)
    size = index.offset + reach + 1 if not clamped else data.draw(st.integers(1, 20))
    make = Maker()
    x = make.input(size)
    graph = make.graph(make.einsum(bounds, 2, [(x, (index,))]))
    needed = io_lower_bound(graph, 1 << 20)[IN] // 8
    assert 1 <= needed <= brute_force(index, bounds, size)


WHOLE = "dim n = 48\ninput A : f32[n, n]\n"


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("C[i] = sum[j] A[i, j]", 48 * 48),
        ("C[i] = A[i, i]", 48),
        ("C[i, j] = A[j, i] + A[i, j]", 48 * 48),
        ("B[i, j] = 2 * A[i, j]\nC[j] = B[7, j]", 48),
        ("B[i: n, j] = A[i - 1 ? 0, j]\nC[i] = sum[j] B[i, j]", 47 * 48),
        ("C[i: 24] = A[2 * i, 3]", 24),
        ("C[i] = A[0, i] + A[1, i] + A[0, i]", 96),
        ("C[i] = sum[j] where(i < 12, A[i, j], 0)", 12 * 48),
    ],
)
def test_what_is_needed_of_an_input_is_found_exactly(text: str, elements: int) -> None:
    plan = et.compile(f"{WHOLE}{text}\noutput C\n").plan(A=np.zeros((48, 48), "f4"), arena="1MiB")
    assert plan.prediction.link_bytes_lower_bound[IN] == 4 * elements


@pytest.mark.parametrize(
    ("arguments", "bound"),
    [
        (lambda at: ["-i", f"A={at / 'A.npy'}", "-o", f"C={at / 'C.npy'}"], {IN: 4 * 48 * 48, OUT: 4 * 48}),
        (lambda at: ["-i", f"A={at / 'A.npy'}"], {IN: 4 * 48 * 48, OUT: 0}),
        (lambda at: ["--random"], {IN: 0, OUT: 0}),
    ],
)
def test_what_is_stored_nowhere_is_not_in_the_bound(
    arguments: Callable[[Path], list[str]], bound: dict[str, int], tmp_path: Path
) -> None:
    np.save(tmp_path / "A.npy", np.ones((48, 48), "f4"))
    (tmp_path / "p.ein").write_text(f"{WHOLE}C[i] = sum[j] A[i, j]\noutput C\n")
    report = tmp_path / "report.json"
    command = ["run", str(tmp_path / "p.ein"), *arguments(tmp_path), "--report", str(report)]
    assert run(command) == 0
    found = json.loads(report.read_text())
    found = found.get("report", found)
    assert found["link_bytes_lower_bound"] == bound
    require_at_least_the_bound(found["link_bytes"], found["link_bytes_lower_bound"])
