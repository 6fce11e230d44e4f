"""Random valid programs of the language, with inputs, as Hypothesis strategies.

``programs()`` draws a ``DrawnCase``: a program in the syntax of ``terms``, its text, and small-integer inputs. Choices
are ordered so that a failing case shrinks to few statements, short terms and small sizes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from einturnip.testing.agreement import Array
from einturnip.testing.drawing_base import Draw, DrawingContext, DrawnTensor
from einturnip.testing.drawing_equations import DrawnEquation
from einturnip.testing.drawing_functions import draw_function
from einturnip.testing.drawing_steps import StepDrawer
from einturnip.testing.printing import program_text
from einturnip.testing.promotion import Type, kind, numpy_dtype
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    DrawnDim,
    DrawnInput,
    DrawnProgram,
    DrawnStatement,
    Fn,
    KeyedTerm,
    NumberTerm,
    SizeTerm,
    Term,
)

DTYPES = ("f64", "f32", "i64", "i8", "f16", "bool", "i32", "u8", "i16", "u16", "u32", "u64", "bf16", "c64", "c128")


@dataclass(frozen=True)
class DrawnCase:
    """A program with its inputs. ``exact``: it was drawn from exact operations only."""

    program: DrawnProgram
    text: str
    inputs: Mapping[str, Array]
    dims: Mapping[str, int]
    exact: bool

    def __repr__(self) -> str:
        """Return the program with its inputs, so that a failure can be repeated by hand."""
        arrays = "".join(f"  {k} = {v.dtype}{list(v.shape)} {v.tolist()}\n" for k, v in self.inputs.items())
        return f"Case:\n{self.text}\n{arrays}  dims {dict(self.dims)}, exact {self.exact}"


def arrays(dtype: str, shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    """Arrays of a language dtype with integers from -3 to 3 (0 to 3 if unsigned)."""
    each = (
        st.nothing() if math.prod(shape) <= 40 else None
    )  # few elements are drawn individually, many with a fill value
    if dtype == "bool":
        return hnp.arrays(np.bool_, shape, fill=each)
    lowest = 0 if kind(dtype) == "u" else -3
    whole = hnp.arrays(np.int8, shape, elements=st.integers(lowest, 3), fill=each)
    if kind(dtype) != "c":
        return whole.map(lambda a: a.astype(numpy_dtype(dtype)))
    return st.tuples(whole, whole).map(lambda ab: np.asarray(ab[0] + 1j * ab[1], numpy_dtype(dtype)))


FEATURES = (
    "indices",
    "guards",
    "gathers",
    "scatters",
    "slices",
    "replacements",
    "concatenation",
    "reshaping",
    "functions",
    "loops",
    "hints",
)
"""The features that a drawn program may have in addition to the core of the language."""


@st.composite
def programs(
    draw: Draw, exact: bool | None = None, max_statements: int = 4, features: Collection[str] = FEATURES
) -> DrawnCase:
    """Programs with inputs; ``exact=True`` draws programs whose every bit is prescribed.

    Each has only some of the features, so that those that it has interact.
    """
    if exact is None:
        exact = draw(st.booleans()) is False
    n = draw(st.sampled_from((2, 1, 3, 0, 5, 8)))
    chosen = draw(st.permutations(tuple(features)))[:n] if features else []
    drawing = _ProgramDrawer(draw, exact, frozenset(chosen))
    drawing.draw_sizes()
    drawing.draw_inputs()
    drawing.draw_dim_origins()
    return drawing.finish(*drawing.draw_steps(draw(st.integers(1, max_statements))))


@st.composite
def failing_programs(draw: Draw) -> DrawnCase:
    """Programs with a statement that reads or groups by an index that is out of bounds."""
    drawing = _ProgramDrawer(draw, True, frozenset())
    drawing.draw_sizes(min_size=1)
    drawing.draw_inputs()
    drawing.draw_index()
    drawing.draw_dim_origins()
    return drawing.finish(*drawing.draw_steps(draw(st.integers(0, 1)), drawing.failure()))


class _ProgramDrawer:
    """Draws one program; used by ``programs``."""

    def __init__(self, draw: Draw, exact: bool, features: frozenset[str]) -> None:
        self.draw, self.exact, self.features = draw, exact, features
        self.sizes: dict[str, int] = {}
        self.dims: list[DrawnDim] = []
        self.given: dict[str, int] = {}
        self.inputs: list[DrawnInput] = []
        self.arrays: dict[str, Array] = {}
        self.names: dict[str, DrawnTensor] = {}
        self.required: list[str] = []

    def draw_sizes(self, min_size: int = 0) -> None:
        for name in ("n", "m", "p")[: self.draw(st.integers(1, 3))]:
            self.sizes[name] = max(min_size, self.draw(st.sampled_from((2, 3, 4, 1, 2, 3, 5, 0))))

    def draw_inputs(self) -> None:
        palette = self.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3, unique=True))
        for name in ("A", "B", "C", "D")[: self.draw(st.integers(1, 4))]:
            self._draw_input(name, self.draw(st.sampled_from(palette)), None)
        if self.features & {"gathers", "scatters"}:
            self.draw_index()

    def draw_index(self) -> None:
        """Draw an input of integers from 0, known to be below some size."""
        below = self.draw(st.sampled_from((*[s for s in self.sizes.values() if s], 2, 3)))
        self._draw_input("K", self.draw(st.sampled_from(("i64", "i32", "u8", "i8", "u16"))), below, (1, 2, 3))

    def _draw_input(self, name: str, dtype: str, below: int | None, ranks: tuple[int, ...] = (1, 2, 2, 3, 0)) -> None:
        shape = tuple(self._axis() for _ in range(self.draw(st.sampled_from(ranks))))
        extents = tuple(self._extent(term) for term in shape)
        self.inputs.append(DrawnInput(name, dtype, shape))
        values = arrays(dtype, extents)
        if below is not None:
            values = hnp.arrays(numpy_dtype(dtype), extents, elements=st.integers(0, below - 1))
        self.arrays[name] = self.draw(values)
        self.names[name] = DrawnTensor(extents, Type(dtype), exact=True, below=below)

    def _axis(self) -> Term:
        size = self.draw(st.sampled_from((*self.sizes, *self.sizes, 1, 3, "+", "*")))
        if isinstance(size, int):
            return NumberTerm(size)
        if size in self.sizes:
            return SizeTerm(size)
        name = SizeTerm(self.draw(st.sampled_from(tuple(self.sizes))))
        return BinaryTerm("+", name, NumberTerm(1)) if size == "+" else BinaryTerm("*", NumberTerm(2), name)

    def _extent(self, term: Term) -> int:
        match term:
            case NumberTerm(value=int(value)):
                return value
            case SizeTerm(name=name):
                return self.sizes[name]
            case BinaryTerm(op="+", left=SizeTerm(name=name)):
                return self.sizes[name] + 1
            case BinaryTerm(op="*", right=SizeTerm(name=name)):
                return self.sizes[name] * 2
            case _:
                raise AssertionError(term)

    def draw_dim_origins(self) -> None:
        """Decide for each dim the origin of its size: an input's axis, the program, or outside."""
        axis_sizes = {t.name for i in self.inputs for t in i.shape if isinstance(t, SizeTerm)}
        for name, size in self.sizes.items():
            source = self.draw(
                st.sampled_from(("axis", "program", "outside") if name in axis_sizes else ("program", "outside"))
            )
            if source == "program":
                self.dims.append(DrawnDim(name, self._definition(name, size)))
            elif source == "outside" or self.draw(st.booleans()):
                self.dims.append(DrawnDim(name))
            if source == "outside":
                self.given[name] = size

    def _definition(self, name: str, size: int) -> Term:
        """A size as a number, or in terms of an earlier dim."""
        earlier = [d.name for d in self.dims]
        if not earlier or self.draw(st.booleans()) is False:
            return NumberTerm(size)
        base = self.draw(st.sampled_from(earlier))
        if self.sizes[base] and size % self.sizes[base] == 0:
            return BinaryTerm("*", SizeTerm(base), NumberTerm(size // self.sizes[base]))
        less = size < self.sizes[base]
        return BinaryTerm("-" if less else "+", SizeTerm(base), NumberTerm(abs(size - self.sizes[base])))

    def draw_steps(self, n: int, first: DrawnEquation | None = None) -> tuple[StepDrawer, tuple[Fn, ...]]:
        """Functions, and statements that may call them, after a first one that is an output."""
        world = DrawingContext(self.sizes, self.names, self.exact, self.features)
        for name in ("f", "g")[: self.draw(st.integers(1, 2))] if "functions" in self.features else ():
            drawn = draw_function(self.draw, world, name)
            world = replace(world, functions=(*world.functions, drawn) if drawn else world.functions)
        self.required = ["first"] if first else []
        steps = StepDrawer(self.draw, world, fixed=frozenset(self.required))
        if first:
            steps.define("first", *first[:3])
        for _ in range(n):
            steps.step()
        return steps, tuple(f.function for f in world.functions)

    def failure(self) -> DrawnEquation:
        """``Z[i] = A[K[i] + 2]`` or ``Z[K[i] + 2: 3] = sum[i] 1``, with at least one index out of bounds."""
        keys = self.arrays["K"]
        labels = ("i", "j", "k")[: keys.ndim]
        read = self.draw(st.sampled_from([None, *(i.name for i in self.inputs if self.names[i.name].shape)]))
        size = self.draw(st.integers(1, 3)) if read is None else self.names[read].shape[0]
        index: Term = AccessTerm("K", labels)
        if self.draw(st.booleans()) and kind(self.names["K"].type.dtype) == "i":
            index = BinaryTerm("-", index, NumberTerm(int(keys.min()) + 1))
        elif keys.max() < size:
            index = BinaryTerm("+", index, NumberTerm(size - int(keys.max())))
        bounds = tuple(map(BoundTerm, labels))
        if read is None:
            count = AggregateTerm("sum", bounds, NumberTerm(1))
            return DrawnEquation(DrawnStatement("", (KeyedTerm(index, NumberTerm(size)),), count), (size,), exact=True)
        shape = self.names[read].shape
        others = ("u", "v")[: len(shape) - 1]
        statement = DrawnStatement("", (*bounds, *map(BoundTerm, others)), AccessTerm(read, (index, *others)))
        return DrawnEquation(statement, (*keys.shape, *shape[1:]), exact=True)

    def finish(self, steps: StepDrawer, functions: tuple[Fn, ...]) -> DrawnCase:
        """The program with some of its definitions as outputs."""
        if not steps.defined:
            steps.define("s", DrawnStatement("", (), NumberTerm(1)), (), exact=True)
        defined = list(dict.fromkeys(reversed(steps.defined)))
        required = dict.fromkeys((*defined[: self.draw(st.integers(1, len(defined)))], *self.required))
        program = DrawnProgram(tuple(self.dims), tuple(self.inputs), tuple(steps.steps), tuple(required), functions)
        return DrawnCase(program, program_text(program), self.arrays, self.given, self.exact)
