"""Drawn programs: what is built, and what is left of it after rewriting, computes what the language page says."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings

from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.lang import compile_text
from einturnip.testing import Answer, DrawnCase, assert_agrees, programs
from einturnip.testing import evaluate as oracle
from einturnip.testing.strategies import FEATURES
from tests.drawn import examples
from tests.reference.eingraph import evaluate

# The oracle gives a number that replaces a slice its own dtype: such programs are held against loops elsewhere.
WHOLE = tuple(feature for feature in FEATURES if feature != "replacements")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(features=WHOLE))
def test_einsums_compute_what_the_program_says(case: DrawnCase) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = oracle(case.program, case.inputs, case.dims)
    graph = build(compile_text(case.text, "drawn.ein"), {n: a.shape for n, a in case.inputs.items()}, case.dims)
    inputs = {name: np.asarray(array) for name, array in case.inputs.items()}
    for name, values in evaluate(graph, inputs).items():
        assert_agrees(values, expected[name])
    for floor in (rewrite(graph), rewrite(graph, 16)):
        for name, values in evaluate(floor, inputs).items():
            assert_agrees(values, finite_part(expected[name]))


def finite_part(answer: Answer) -> Answer:
    """The answer with no demand where it is infinite or NaN: 0 * inf, once factored, may be another of the two."""
    return Answer(answer.values, np.where(np.isfinite(answer.values), answer.slack, np.inf))
