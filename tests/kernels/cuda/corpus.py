"""Every tile kernel that the programs of the tests ask for: sentences, examples, the standard library, drawn ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, given, settings

import einturnip as et
from einturnip.eingraph.builder import EinsumInterner
from einturnip.eingraph.fusion.fuse import fuse
from einturnip.eingraph.types import EinGraph, EinsumNode
from einturnip.ir.aggregations import Aggregation, aggregation
from einturnip.ir.dtypes import DType
from einturnip.ir.einsum import Einsum
from einturnip.ir.region import Region
from einturnip.kernels.cuda.generate import generate, layout
from einturnip.kernels.cuda.types import CudaKernel, DeviceTile
from einturnip.kernels.protocol import Mode
from einturnip.planner import variants
from einturnip.testing import programs
from tests.examples.test_examples import PROGRAMS
from tests.language.test_semantics import SENTENCES
from tests.std.test_std import CALLS

from .. import regions
from .drawn import SOURCES, drawn


class _Enough(Exception):
    """The graphs were seen."""


def graphs(program: et.Program, inputs: Mapping[str, Any]) -> list[EinGraph]:
    """The rewritten graph of a program, and with its regions."""
    found: list[EinGraph] = []
    rewrite = variants.rewrite

    def record(graph: EinGraph, limit: int | None) -> EinGraph:
        rewritten = rewrite(graph, limit)
        found.extend((rewritten, fuse(rewritten, EinsumInterner(), limit)))
        raise _Enough

    with mock.patch.object(variants, "rewrite", record), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program.plan(data=inputs, workers=1)
        except _Enough:
            return found
    raise AssertionError("a plan without a graph")


def _programs(n_drawn: int) -> Iterator[tuple[str, et.Program, Mapping[str, Any]]]:
    for sentence in SENTENCES:
        yield "language", et.compile(sentence.text, dims=sentence.dims), sentence.inputs
    for path in PROGRAMS:
        if find_spec(f"tests.examples.{path.parent.name}") is None:  # tested elsewhere, on models' own files
            continue
        example = getattr(import_module(f"tests.examples.{path.parent.name}"), path.stem)(np.random.default_rng(7))
        yield "examples", et.compile(path, dims=example.dims), example.inputs
    for call in CALLS:
        for dtype in ("float16", "float32", "float64"):
            yield "library", call.program(dtype), call.cast(call.inputs, dtype)
    cases = []

    @settings(
        max_examples=max(1, n_drawn),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def draw(case: Any) -> None:
        cases.append(case)

    draw()
    for case in cases[:n_drawn]:
        yield "drawn", et.compile(case.text, dims=case.dims), case.inputs


def spaces(n_drawn: int) -> dict[str, list[Einsum | Region]]:
    """By source, the distinct einsums and regions."""
    found: dict[str, dict[str, Einsum | Region]] = {}
    for source, program, inputs in _programs(n_drawn):
        for graph in graphs(program, inputs):
            for node in graph.nodes:
                if isinstance(node, EinsumNode):
                    found.setdefault(source, {}).setdefault(repr(node.einsum), node.einsum)
    found["by hand"] = {str(n): case(np.random.default_rng(n)).region for n, case in enumerate(regions.CASES)}
    for source in SOURCES if n_drawn else ():
        found[f"drawn {source}"] = {repr(c.einsum): c.einsum for c in drawn(source, n_drawn)}
    return {source: list(of.values()) for source, of in found.items()}


def kernels(space: Einsum | Region) -> Iterator[CudaKernel]:
    """The kernels of an einsum in every mode, where it lies densely also with the layout that this allows."""
    folds = isinstance(space, Region) or space.aggregation
    modes: tuple[Mode, ...] = ("full", "accumulate", "finalize") if folds else ("full",)
    modes += ("combine",) if isinstance(space, Region) and not space.of_rows else ()
    for mode in modes:
        yield generate(space, mode)
    if isinstance(space, Einsum) and space.aggregation is not None:
        yield generate(space, "combine")
    if isinstance(space, Einsum) and space.aggregation is None and space.n_out:
        rows = [tuple(1 if a == len(s) - 1 else 256 for a in range(len(s))) for s in space.accesses]
        views = [DeviceTile(tuple(n * d.itemsize for n in r)) for r, d in zip(rows, space.dtypes, strict=True)]
        out = DeviceTile(tuple((1 if a == space.n_out - 1 else 256) * space.dtype.itemsize for a in range(space.n_out)))
        yield generate(space, "full", layout(space, "full", space.bounds, views, [out]))


@cache
def sources(n_drawn: int) -> tuple[dict[str, int], dict[str, CudaKernel]]:
    """How many einsums and regions each source gave, and the kernels of distinct text by name."""
    found = spaces(n_drawn)
    made = {k.name: k for of in found.values() for space in of for k in kernels(space)}
    return {source: len(of) for source, of in found.items()}, made


def total(dtype: DType) -> Aggregation:
    """A sum."""
    return aggregation("sum", dtype)
