"""Hypothesis strategies and oracles for property tests of tensor programs.

``programs`` (a strategy), ``evaluate`` (the oracle) and ``assert_agrees`` are all that most tests need:

    @given(programs())
    def test_mine(case):
        expected = evaluate(case.program, case.inputs, case.dims)
        result = run(case.text, case.inputs, case.dims)
        for name, answer in expected.items():
            assert_agrees(result[name], answer)

Needs Hypothesis; nothing else in einturnip loads it. Read ``terms`` (the syntax of drawn programs) and ``printing``,
then ``strategies`` with the ``drawing_*`` modules, and ``oracle`` with ``values``, ``kinds``, ``promotion``,
``ranges``, ``spelling``, ``arithmetic`` and ``aggregation``.
"""

from einturnip.testing.agreement import Answer, assert_agrees
from einturnip.testing.oracle import evaluate
from einturnip.testing.strategies import DrawnCase, arrays, failing_programs, programs

__all__ = ["Answer", "DrawnCase", "arrays", "assert_agrees", "evaluate", "failing_programs", "programs"]
