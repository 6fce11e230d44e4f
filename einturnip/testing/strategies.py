"""Random valid programs of the language core, with inputs, as Hypothesis strategies.

``programs()`` draws a ``Case``: a program in ``terms``' syntax, its text, and small-integer inputs. Choices are ordered
so that a failing case shrinks to few statements, short terms and small sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from einturnip.testing.agreement import Array
from einturnip.testing.drawing import Draw, Tensor, TermDrawer
from einturnip.testing.kinds import statement_type
from einturnip.testing.printing import program_text
from einturnip.testing.promotion import Type, kind, numpy_dtype
from einturnip.testing.terms import (
    Binary,
    Dim,
    Input,
    Number,
    Program,
    Size,
    Statement,
    Term,
)

DTYPES = ("f64", "f32", "i64", "i8", "f16", "bool", "i32", "u8", "i16", "u16", "u32", "u64", "bf16", "c64", "c128")


@dataclass(frozen=True)
class Case:
    """A program with what it runs on. ``exact`` says that it was drawn from exact operations only."""

    program: Program
    text: str
    inputs: Mapping[str, Array]
    dims: Mapping[str, int]
    exact: bool

    def __repr__(self) -> str:
        arrays = "".join(f"  {k} = {v.dtype}{list(v.shape)} {v.tolist()}\n" for k, v in self.inputs.items())
        return f"Case:\n{self.text}\n{arrays}  dims {dict(self.dims)}, exact {self.exact}"


def arrays(dtype: str, shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    """Arrays of a language dtype that hold integers from -3 to 3 (0 to 3 where unsigned)."""
    each = st.nothing() if math.prod(shape) <= 40 else None  # few elements are drawn one by one, many with a fill value
    if dtype == "bool":
        return hnp.arrays(np.bool_, shape, fill=each)
    least = 0 if kind(dtype) == "u" else -3
    whole = hnp.arrays(np.int8, shape, elements=st.integers(least, 3), fill=each)
    if kind(dtype) != "c":
        return whole.map(lambda a: a.astype(numpy_dtype(dtype)))
    return st.tuples(whole, whole).map(lambda ab: (ab[0] + 1j * ab[1]).astype(numpy_dtype(dtype)))


@st.composite
def programs(draw: Draw, exact: bool | None = None, max_statements: int = 4) -> Case:
    """Programs with inputs; ``exact`` asks for programs whose every bit is prescribed (or the contrary)."""
    if exact is None:
        exact = draw(st.booleans()) is False
    drawing = _ProgramDrawer(draw, exact)
    drawing.draw_sizes()
    drawing.draw_inputs()
    drawing.settle_dims()
    for _ in range(draw(st.integers(1, max_statements))):
        drawing.draw_statement()
    return drawing.finish()


class _ProgramDrawer:
    """Builds one program; lives inside ``programs``."""

    def __init__(self, draw: Draw, exact: bool) -> None:
        self.draw, self.exact = draw, exact
        self.sizes: dict[str, int] = {}
        self.dims: list[Dim] = []
        self.given: dict[str, int] = {}
        self.inputs: list[Input] = []
        self.arrays: dict[str, Array] = {}
        self.names: dict[str, Tensor] = {}
        self.statements: list[Statement] = []

    def draw_sizes(self) -> None:
        for name in ("n", "m", "p")[: self.draw(st.integers(1, 3))]:
            self.sizes[name] = self.draw(st.sampled_from((2, 3, 4, 1, 2, 3, 5, 0)))

    def draw_inputs(self) -> None:
        palette = self.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3, unique=True))
        for name in ("A", "B", "C", "D")[: self.draw(st.integers(1, 4))]:
            dtype = self.draw(st.sampled_from(palette))
            shape = tuple(self._axis() for _ in range(self.draw(st.sampled_from((1, 2, 2, 3, 0)))))
            extents = tuple(self._extent(term) for term in shape)
            self.inputs.append(Input(name, dtype, shape))
            self.arrays[name] = self.draw(arrays(dtype, extents))
            self.names[name] = Tensor(extents, Type(dtype), exact=True)

    def _axis(self) -> Term:
        size = self.draw(st.sampled_from((*self.sizes, *self.sizes, 1, 3, "+", "*")))
        if isinstance(size, int):
            return Number(size)
        if size in self.sizes:
            return Size(size)
        name = Size(self.draw(st.sampled_from(tuple(self.sizes))))
        return Binary("+", name, Number(1)) if size == "+" else Binary("*", Number(2), name)

    def _extent(self, term: Term) -> int:
        match term:
            case Number(value=int(value)):
                return value
            case Size(name=name):
                return self.sizes[name]
            case Binary(op="+", left=Size(name=name)):
                return self.sizes[name] + 1
            case Binary(op="*", right=Size(name=name)):
                return self.sizes[name] * 2
            case _:
                raise AssertionError(term)

    def settle_dims(self) -> None:
        """Say for each dim where its size comes from: an input's axis, the program, or outside."""
        standing = {t.name for i in self.inputs for t in i.shape if isinstance(t, Size)}
        for name, size in self.sizes.items():
            source = self.draw(
                st.sampled_from(("axis", "program", "outside") if name in standing else ("program", "outside"))
            )
            if source == "program":
                self.dims.append(Dim(name, self._definition(name, size)))
            elif source == "outside" or self.draw(st.booleans()):
                self.dims.append(Dim(name))
            if source == "outside":
                self.given[name] = size

    def _definition(self, name: str, size: int) -> Term:
        """A size as a number or, where an earlier dim allows it, by that dim."""
        earlier = [d.name for d in self.dims]
        if not earlier or self.draw(st.booleans()) is False:
            return Number(size)
        base = self.draw(st.sampled_from(earlier))
        if self.sizes[base] and size % self.sizes[base] == 0:
            return Binary("*", Size(base), Number(size // self.sizes[base]))
        less = size < self.sizes[base]
        return Binary("-" if less else "+", Size(base), Number(abs(size - self.sizes[base])))

    def draw_statement(self) -> None:
        kinds = ("equation", "equation", "equation", "einstein", "scalar")
        kind_ = self.draw(st.sampled_from(kinds))
        drawer = TermDrawer(self.draw, self.sizes, self.names, self.exact)
        if kind_ == "einstein":
            bounds, body, extents, exact = drawer.einstein()
        else:
            rank = 0 if kind_ == "scalar" else self.draw(st.integers(1, 3))
            bounds, body, extents, exact = drawer.equation(rank)
        new = f"{'Z' if bounds else 's'}{len(self.statements)}"
        name = self.draw(st.sampled_from((new, new, *self.names)))
        statement = Statement(name, bounds, body)
        self.statements.append(statement)
        of = statement_type(statement, {k: t.type for k, t in self.names.items()})
        self.names[name] = Tensor(extents, of, exact)

    def finish(self) -> Case:
        defined = list(dict.fromkeys(s.name for s in reversed(self.statements)))
        wanted = defined[: self.draw(st.integers(1, len(defined)))]
        program = Program(tuple(self.dims), tuple(self.inputs), tuple(self.statements), tuple(wanted))
        return Case(program, program_text(program), self.arrays, self.given, self.exact)
