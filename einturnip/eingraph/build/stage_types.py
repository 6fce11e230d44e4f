"""Programs in stages: graphs that run one after another, or once for each iteration of a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from einturnip.eingraph.build.positions import Place
from einturnip.eingraph.types import EinGraph, InputNode
from einturnip.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class ValueSlice:
    """A slice of a value or of an input of the program, at a position that depends on the loop's variable."""

    value: str
    place: Place


@dataclass(frozen=True, slots=True)
class Iterations:
    """The iterations of a loop.

    ``values``: the values of the loop's variable; in a ``while``, as many as its bound. ``variable``: the input with
    that value, if the body reads it. ``states``: the values that the body reads and replaces. ``reads``: by input, the
    slice that it reads; ``writes``: by output, the slice that it is written to. ``initial``: for each value that the
    loop writes, its contents when the loop begins, a copy of another value, a slice or an input. ``condition``: in a
    ``while``, the value that must be true for an iteration to begin.

    The gradient of a loop is a backward loop, whose ``values`` are in reverse order. ``counted``: in the backward loop
    of a ``while``, the condition of that ``while``, whose number of iterations it repeats. ``saved``: by value, the
    slice that it is copied to when a segment of ``segment`` iterations begins. ``replays``: this loop computes the
    states of a segment again, from the saved ones, before the backward loop after it runs that segment; the last
    segment comes first.
    """

    values: range
    variable: str | None
    states: tuple[str, ...]
    reads: Mapping[str, ValueSlice]
    writes: Mapping[str, ValueSlice]
    initial: Mapping[str, str | ValueSlice]
    condition: str | None = None
    counted: str | None = None
    segment: int = 0
    saved: Mapping[str, ValueSlice] = field(default_factory=dict)
    replays: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A graph and, if it is the body of a loop, its iterations. ``line``: its first line in the program."""

    graph: EinGraph
    iterations: Iterations | None
    line: int


@dataclass(frozen=True, slots=True)
class StageValue:
    """A tensor that outlives the stage that makes it."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class StagedProgram:
    """The stages of a program in order, the values that they pass to each other, and the program's inputs.

    ``in_segments``: makes the same program with less memory for gradients: loops save their states only at the start of
    each segment of about the square root of their iterations, not in each iteration. None if no gradient needs states.
    """

    stages: tuple[Stage, ...]
    values: tuple[StageValue, ...]
    inputs: tuple[InputNode, ...]
    in_segments: Callable[[], StagedProgram] | None = None
