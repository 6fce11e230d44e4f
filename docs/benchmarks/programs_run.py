"""The runs of programs.py's children: each program from its files, within a memory, to files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import einturnip as et
from einturnip.core.errors import CapacityError

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DIGITS_STEPS = 300


def memory_of(process: str, field: str) -> int:
    """A figure of the kernel about a process, in bytes."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    (found,) = (int(line.split()[1]) << 10 for line in status if line.startswith(f"{field}:"))
    return found


def _within(memory: int, run: Callable[[int], None], beside: int = 0) -> None:
    """Run within the remaining memory of the process; in Python the limit is on what a call adds.

    ``beside``: bytes that the script itself takes.

    Raises:
        CapacityError: ``needed`` is the minimum for the whole process.
    """
    taken = memory_of("self", "VmRSS") + beside
    if memory <= taken:
        raise CapacityError("Python and its libraries alone take more", taken + (1 << 20))
    try:
        run(memory - taken)
    except CapacityError as error:
        raise CapacityError(str(error), error.needed + taken) from None


def _program(file: str, inputs: str, outputs: str) -> Callable[[Path, int], None]:
    """A program of docs/examples/models with inputs and outputs in files of the same names."""

    def run(folder: Path, memory: int) -> None:
        data = {name: str(folder / f"{name}.npy") for name in inputs.split()}
        out = {name: str(folder / f"out_{name}.npy") for name in outputs.split()}
        program = et.compile(EXAMPLES / "models" / file)
        _within(memory, lambda room: program(data=data, out=out, memory=room, spill=str(folder)))

    return run


def _circuit(folder: Path, memory: int) -> None:
    gates = {name: str(folder / f"{name}.npy") for name in ("X", "Y", "W", "CZ", "zero")}
    out = {"amplitude": str(folder / "out_amplitude.npy")}
    program = et.compile((folder / "circuit.ein").read_text())
    _within(memory, lambda room: program(data=gates, out=out, memory=room, spill=str(folder)))


def _digits(folder: Path, memory: int) -> None:
    images, labels = np.load(folder / "images.npy"), np.load(folder / "labels.npy")
    batches = np.load(folder / "batches.npy")
    begin = {name: np.load(folder / f"{name}.npy") for name in ("W1", "W2")}
    program = et.compile(EXAMPLES / "training" / "digits.ein")

    def train(room: int) -> None:
        with program.session(data={**begin, "total": DIGITS_STEPS}, memory=room, spill=str(folder)) as session:
            for batch in batches:
                session.step(X=images[batch], y=labels[batch])
            for name in ("W1", "b1", "W2", "b2"):
                np.save(folder / f"out_{name}.npy", session.state(name))

    _within(memory, train)


def _lora(folder: Path, memory: int) -> None:
    sys.path.insert(0, str(EXAMPLES / "models"))
    from generate import MODEL_NBYTES
    from lora import LoRA

    def train(room: int) -> None:
        lora = LoRA(str(folder / "model.gguf"), memory=room, spill=str(folder))
        np.save(folder / "out_losses.npy", [lora.step(ids) for ids in np.load(folder / "windows.npy")])
        lora.session.close()

    _within(memory, train, MODEL_NBYTES)  # as lora.py does, this reserves memory for the model's own description


RUNS: dict[str, Callable[[Path, int], None]] = {
    "matrix chain, square": _program("matrix_chain.ein", "A B C D E", "R"),
    "matrix chain, skewed": _program("matrix_chain.ein", "A B C D E", "R"),
    "graph attention": _program("graph_attention.ein", "X source target W a b", "Y"),
    "tensor network": _circuit,
    "CCD": _program("ccd.ein", "oo ov vv g eo ev", "energy T"),
    "digits": _digits,
    "LoRA": _lora,
}
