"""Orders of contractions: operations of einturnip's, opt_einsum's and cotengra's orders.

    python docs/benchmarks/orders.py [CASES.json] [--cotengra SECONDS]

CASES.json: a list of ``{"name", "equation", "shapes"}`` as in the Einsum Benchmark (Blacher et al., NeurIPS 2024).
Further networks are drawn at random by opt_einsum's generator (which requires pytest), seeded. A row for each network:
its tensors; for each method log10 of the operations (a multiplication, and an addition if anything is summed, for each
point), log10 of the elements of the largest intermediate, and the CPU seconds. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import opt_einsum as oe
from opt_einsum.testing import rand_equation

from einturnip.eingraph.rewrite.contraction_order import contraction_order, work
from einturnip.eingraph.rewrite.optimal_order import Pairs

Network = tuple[str, list[frozenset[int]], frozenset[int], dict[int, int]]
# Number of tensors, labels of each, labels of the result, minimum and maximum size, seed.
DRAWN = (
    (12, 4, 2, 3, 9, 3),
    (18, 3, 2, 3, 6, 9),
    (25, 3, 2, 2, 4, 4),
    (40, 3, 2, 2, 4, 3),
    (60, 3, 2, 2, 3, 3),
    (120, 3, 1, 2, 2, 3),
    (300, 2, 2, 2, 3, 3),
    (800, 2, 1, 2, 2, 3),
)


def network(name: str, equation: str, shapes: list[tuple[int, ...]]) -> Network:
    """Labels as numbers."""
    terms, out = equation.split("->")
    factors = terms.split(",")
    sizes = {ord(x): n for term, shape in zip(factors, shapes, strict=True) for x, n in zip(term, shape, strict=True)}
    return name, [frozenset(map(ord, f)) for f in factors], frozenset(map(ord, out)), sizes


def networks(path: Path | None) -> Iterator[Network]:
    """The networks of the file with more than two tensors, then the drawn ones."""
    for case in json.loads(path.read_text()) if path else ():
        if len(case["shapes"]) > 2:
            yield network(case["name"], case["equation"], [tuple(shape) for shape in case["shapes"]])
    for n, degree, out, least, most, seed in DRAWN:
        equation, shapes = rand_equation(n, degree, n_out=out, d_min=least, d_max=most, seed=seed)[:2]
        yield network(f"drawn, {n} tensors of {degree} labels", equation, [getattr(s, "shape", s) for s in shapes])


def by_opt_einsum(factors: list[frozenset[int]], out: frozenset[int], sizes: dict[int, int]) -> Pairs:
    """The order of opt_einsum's ``auto``."""
    return tuple((min(step), max(step)) for step in oe.paths.auto(factors, out, sizes))


def by_cotengra(factors: list[frozenset[int]], out: frozenset[int], sizes: dict[int, int], seconds: float) -> Pairs:
    """The best order of cotengra's searches within ``seconds``, by one process."""
    import cotengra

    optimizer = cotengra.HyperOptimizer(minimize="flops", max_time=seconds, max_repeats=10_000, parallel=False)
    tree = optimizer.search(
        [tuple(map(chr, f)) for f in factors], tuple(map(chr, out)), {chr(x): n for x, n in sizes.items()}
    )
    return tuple((min(step), max(step)) for step in tree.get_path())


def main() -> None:
    """Order every network by every method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="?", type=Path)
    parser.add_argument("--cotengra", type=float, default=0.0)
    options = parser.parse_args()
    methods: dict[str, Callable[..., Pairs]] = {
        "opt_einsum, auto": by_opt_einsum,
        "einturnip": lambda factors, out, sizes: contraction_order(factors, out, sizes, None),
    }
    if options.cotengra:
        methods[f"cotengra, {options.cotengra:g} s"] = partial(by_cotengra, seconds=options.cotengra)
    print("| network | tensors |", *(f" {name} |" for name in methods), sep="")
    print("|---|---|", *("---|" for _ in methods), sep="")
    for name, factors, out, sizes in networks(options.cases):
        cells = []
        for method in methods.values():
            began = time.process_time()
            pairs = method(factors, out, sizes)
            took = time.process_time() - began
            found = work(pairs, factors, out, sizes)
            cells.append(f" {math.log10(found.flops):.2f}, {math.log10(max(1, found.largest)):.1f}, {took:.2f} s |")
        print(f"| {name} | {len(factors)} |", *cells, sep="", flush=True)


if __name__ == "__main__":
    main()
