"""Amplitudes of a random quantum circuit on a grid of qubits, as one product over all its gates.

    python tensor_network.py [--rows 5] [--columns 5] [--cycles 8] [--seed 0] [--open 0] [--memory 256MiB] [--print]

A cycle is a random gate for each qubit, a root of X, Y or W and never the same twice in a row, and CZ between
neighbours, a quarter of the pairs at a time (Boixo et al., Characterizing quantum supremacy in near-term devices, 2018;
gates of Arute et al., 2019). The amplitude is that of ending in 0...0; ``--open`` leaves the ends of that many qubits
open, which gives 2**open amplitudes. ``--print`` prints the program, which is in tensor_network.ein, and runs nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import einturnip as et

GATES = {
    "X": np.array([[1 + 1j, 1 - 1j], [1 - 1j, 1 + 1j]]) / 2,
    "Y": np.array([[1 + 1j, -1 - 1j], [1 + 1j, 1 + 1j]]) / 2,
    "W": np.array([[1 + 1j, -1j * np.sqrt(2)], [np.sqrt(2), 1 + 1j]]) / 2,
    "CZ": np.array([[1, 1], [1, -1]], np.complex128),
    "zero": np.array([1, 0], np.complex128),
}
TERMS_A_LINE = 8


@dataclass(frozen=True)
class Circuit:
    """Its tensors in order, each the name of a gate and its labels, and the open labels."""

    title: str
    terms: tuple[tuple[str, tuple[str, ...]], ...]
    ends: tuple[str, ...]

    def program(self) -> str:
        """The circuit in the language."""
        drawn = [f"{name}[{','.join(labels)}]" for name, labels in self.terms]
        lines = [f"({' * '.join(drawn[i : i + TERMS_A_LINE])})" for i in range(0, len(drawn), TERMS_A_LINE)]
        product = " *\n    ".join(lines)
        ends = f"[{','.join(self.ends)}]" if self.ends else ""
        return (
            f"# {self.title}, by tensor_network.py.\n"
            "# A label is a qubit and how many gates it has passed. CZ is diagonal: it leaves its labels as they are.\n"
            "input X : c128[q, q], Y : c128[q, q], W : c128[q, q]  # roots of gates of one qubit\n"
            "input CZ : c128[q, q]                                 # its diagonal\n"
            "input zero : c128[q]                                  # where a qubit begins, and is to end\n"
            f"amplitude{ends} =\n    {product}\noutput amplitude\n"
        )

    def operands(self) -> list[Any]:
        """Arrays and labels alternately, then the labels of the result, as for opt_einsum's ``contract``."""
        return [x for name, labels in self.terms for x in (GATES[name], list(labels))] + [list(self.ends)]


def random_circuit(rows: int, columns: int, cycles: int, seed: int = 0, opened: int = 0) -> Circuit:
    """A random circuit with a seed; the last ``opened`` qubits' ends are open."""
    drawn, count = np.random.default_rng(seed), rows * columns
    passed, last = [0] * count, [""] * count
    terms: list[tuple[str, tuple[str, ...]]] = [("zero", (f"q{k}_0",)) for k in range(count)]
    for cycle in range(cycles):
        for k in range(count):
            last[k] = str(drawn.choice([name for name in "XYW" if name != last[k]]))
            passed[k] += 1
            terms.append((last[k], (f"q{k}_{passed[k]}", f"q{k}_{passed[k] - 1}")))
        terms += [("CZ", (f"q{a}_{passed[a]}", f"q{b}_{passed[b]}")) for a, b in _pairs(rows, columns, cycle % 4)]
    ends = [f"q{k}_{passed[k]}" for k in range(count)]
    terms += [("zero", (end,)) for end in ends[: count - opened]]
    title = f"An amplitude of a random circuit of {rows} x {columns} qubits, {cycles} cycles, seed {seed}"
    return Circuit(title, tuple(terms), tuple(ends[count - opened :]))


def _pairs(rows: int, columns: int, pattern: int) -> Iterator[tuple[int, int]]:
    """Neighbours that interact in a cycle: along rows or columns, from even or odd positions."""
    down, odd = pattern % 2, pattern // 2
    for i in range(rows - down):
        for j in range(columns + down - 1):
            if (i if down else j) % 2 == odd:
                yield i * columns + j, (i + down) * columns + j + 1 - down


def main() -> None:
    """Print the program, or run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--open", type=int, default=0, help="qubits whose ends are open")
    parser.add_argument("--memory")
    parser.add_argument("--print", action="store_true", help="print the program and run nothing")
    given = parser.parse_args()
    circuit = random_circuit(given.rows, given.columns, given.cycles, given.seed, given.open)
    if given.print:
        print(circuit.program(), end="")
        return
    found = et.compile(circuit.program())(data=GATES, memory=given.memory)["amplitude"]
    print(np.asarray(found).reshape(-1))


if __name__ == "__main__":
    main()
