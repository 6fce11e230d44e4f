"""Random quantum circuits: the program compared with opt_einsum, and with the whole state stepped gate by gate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum
import pytest

import einturnip as et

MODELS = Path(__file__).parents[2] / "docs" / "examples" / "models"


@pytest.fixture
def circuits(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(MODELS))
    yield __import__("tensor_network")
    sys.modules.pop("tensor_network")


def test_the_program_is_what_the_script_prints(circuits: Any) -> None:
    assert (MODELS / "tensor_network.ein").read_text() == circuits.random_circuit(5, 5, 8).program()


def test_the_amplitude_beside_opt_einsum(circuits: Any) -> None:
    found = et.compile(MODELS / "tensor_network.ein")(data=circuits.GATES, memory="256MiB")["amplitude"]
    expected = opt_einsum.contract(*circuits.random_circuit(5, 5, 8).operands(), optimize="auto")
    assert abs(found - expected) <= 1e-12 * abs(expected)


@pytest.mark.parametrize("settings", [{"memory": "256MiB"}, {"arena": "16KiB"}])
def test_open_ends_beside_the_state_stepped_gate_by_gate(circuits: Any, settings: dict[str, Any]) -> None:
    circuit = circuits.random_circuit(3, 4, 8, seed=3, opened=7)
    state: Any = np.ones(())
    where: list[str] = []  # the label of each axis of the state
    for name, labels in circuit.terms:
        gate = circuits.GATES[name]
        if name == "CZ":
            a, b = (where.index(label) for label in labels)
            shape = [2 if k in (a, b) else 1 for k in range(state.ndim)]
            state = state * gate.reshape(shape)
        elif len(labels) == 2:
            axis = where.index(labels[1])
            state, where[axis] = np.moveaxis(np.tensordot(gate, state, (1, axis)), 0, axis), labels[0]
        elif labels[0] in where:
            axis = where.index(labels[0])
            state = np.tensordot(gate, state, (0, axis))
            del where[axis]
        else:
            state, where = np.multiply.outer(state, gate), [*where, labels[0]]
    found = et.compile(circuit.program())(data=circuits.GATES, **settings)["amplitude"]
    assert where == list(circuit.ends)
    np.testing.assert_allclose(found, state, rtol=0, atol=1e-13)
