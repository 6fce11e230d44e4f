"""A program with gradients on three floors: by its definition, as built, and rewritten."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph
from einturnip.ir.operators import Array
from einturnip.lang import compile_text
from tests.reference.eingraph import evaluate
from tests.reference.program import evaluate as by_definition
from tests.reference.program_check import check

_DTYPES = {"f": "f64", "c": "c128", "i": "i64"}


def graph_of(text: str, inputs: Mapping[str, Array], dims: Mapping[str, int] | None = None) -> EinGraph:
    """The graph of a program, as built."""
    program = compile_text(text, "gradient.ein")
    check(program)
    return build(program, {name: array.shape for name, array in inputs.items()}, dims or {})


def run(text: str, inputs: Mapping[str, Array], dims: Mapping[str, int] | None = None) -> dict[str, Array]:
    """The outputs as built, which are those after rewriting too."""
    graph = graph_of(text, inputs, dims)
    found = evaluate(graph, inputs)
    for name, array in evaluate(rewrite(graph), inputs).items():
        np.testing.assert_allclose(array, found[name], rtol=1e-7, atol=1e-9, err_msg=f"{name}, rewritten:\n{text}")
    return found


def assert_derived(text: str, inputs: Mapping[str, Array], dims: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Hold every output of a program against the definition of a derivative; gives the outputs."""
    expected = by_definition(compile_text(text, "gradient.ein"), inputs, dims)
    found = run(text, inputs, dims)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=1e-6, err_msg=f"{name}:\n{text}")
        assert found[name].dtype == array.dtype
    return found


def with_gradients(body: str, loss: str, inputs: Mapping[str, Array]) -> str:
    """A program of a body over inputs, with the gradient of a loss by each that has one."""
    lines, names = [], []
    for name, array in inputs.items():
        axes = ", ".join(map(str, array.shape))
        lines.append(f"input {name} : {_DTYPES[array.dtype.kind]}" + (f"[{axes}]" if axes else ""))
    lines += [body]
    for name, array in inputs.items():
        if array.dtype.kind in "fc":
            labels = ",".join("uvwxyz"[: array.ndim])
            labels = f"[{labels}]" if labels else ""
            lines.append(f"g{name}{labels} = grad({loss}, {name}{labels})")
            names.append(f"g{name}")
    return "\n".join([*lines, f"output {', '.join([loss, *names])}", ""])
