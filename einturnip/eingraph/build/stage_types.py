"""Programs in stages: graphs that run one after another, the bodies of loops once an iteration."""

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

    ``variable``: the input that holds the loop's variable, if the body reads it, which takes the ``values``. ``states``
    are the values that the body reads and replaces. ``reads`` are the slices that inputs of the body read, ``writes``
    the slices of values that its outputs are. ``initial``: the value, slice or input that a value is a copy of when the
    loop begins. ``condition``: of a ``while``, the value that must be true for an iteration to begin; ``values`` are
    then those of the bound.

    A derived loop has a backward loop, whose ``values`` run the other way. ``counted`` is the condition of the
    ``while`` that it derives: it has as many iterations as that one ran. ``saved``: the slices that are copies of
    values when a segment of ``segment`` iterations begins. A loop that ``replays`` runs for each segment before the
    loop after it does, the last segment first; it begins with what was saved.
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
    """A graph, and for the body of a loop its iterations. ``line``: where it begins in the program."""

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
    """The stages of a program in their order, the values that they hand on, and the program's inputs.

    ``in_segments`` makes another program for the same sizes, whose derived loops keep their states at the start of each
    segment of about the square root of their iterations, and not at the start of each iteration. None without gradients
    that need states.
    """

    stages: tuple[Stage, ...]
    values: tuple[StageValue, ...]
    inputs: tuple[InputNode, ...]
    in_segments: Callable[[], StagedProgram] | None = None
