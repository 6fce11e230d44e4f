"""Assembles graphs into steps over registers: each step's loop level, each value's workspace offset.

Workspace is assigned by lifetimes, as in register allocation: values whose lifetimes overlap do not overlap in memory,
and an element-wise step may overwrite an argument that is not read again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from einturnip.core.units import whole_lines
from einturnip.ir.dtypes import F32, I64
from einturnip.kernels.expr.blocked_space import BlockedSpace
from einturnip.kernels.expr.graph import PrimitiveGraph, PrimitiveNode
from einturnip.kernels.expr.primitives import Operation, in_place, mask_type, operation

RegisterKind = Literal["operand", "raw", "out", "raw_out", "slot", "table", "number", "start", "size"]


@dataclass(frozen=True, slots=True)
class Register:
    """The storage of a value.

    ``index``: the operand's or output's, or the label whose start or size in the block it contains. ``array``: of a
    number. ``raw`` is an operand's whole tile, ``raw_out`` an output's. ``table`` is a vector of ``index`` elements in
    the workspace.
    """

    kind: RegisterKind
    dtype: np.dtype[Any]
    labels: frozenset[int]
    level: int
    index: int = 0
    array: Any = None


@dataclass(frozen=True, slots=True)
class PrimitiveStep:
    """``operation(*arguments, out=out)`` over registers; ``name``: of the primitive, if it has one."""

    operation: Operation
    arguments: tuple[int, ...]
    out: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class AssembledSteps:
    """Steps over registers, in the sections of a loop nest, for blocks of any size.

    ``sections``: see Assembler. ``carries``: by level of partial states, the steps that initialise the state above it,
    and those that combine with it. ``iotas``: registers that contain 0, 1, ... when a call begins. ``lives``: (slot,
    first write, last read, slot whose bytes it takes over) in the order of the first writes.
    """

    registers: tuple[Register, ...]
    sections: tuple[tuple[PrimitiveStep, ...], ...]
    carries: tuple[tuple[tuple[PrimitiveStep, ...], tuple[PrimitiveStep, ...]], ...]
    iotas: tuple[int, ...]
    lives: tuple[tuple[int, int, int, int | None], ...]

    def layout(self, space: BlockedSpace) -> tuple[dict[int, int], int]:
        """Return the byte offset of each slot, and the workspace's size; live slots do not overlap."""
        offsets: dict[int, int] = {}
        taken: list[tuple[int, int, int, int]] = []  # register, offset, end, last
        total = 0
        for register, first, last, host in self.lives:
            nbytes = self._nbytes(register, space)
            if host is not None:
                offset = offsets[host]
                taken = [t for t in taken if t[0] != host]
            else:
                taken = [t for t in taken if t[3] >= first]
                offset = _gap(sorted((o, e) for _, o, e, _ in taken), nbytes)
            offsets[register] = offset
            taken.append((register, offset, offset + nbytes, last))
            total = max(total, offset + nbytes)
        return offsets, total

    def tables_nbytes(self, space: BlockedSpace) -> int:
        """Return the bytes of workspace for tables."""
        return sum(self._nbytes(k, space) for k, r in enumerate(self.registers) if r.kind == "table")

    def _nbytes(self, register: int, space: BlockedSpace) -> int:
        r = self.registers[register]
        size = r.index if r.kind == "table" else math.prod([space.blocks[p] for p in r.labels])
        return whole_lines(size * r.dtype.itemsize)


@dataclass(slots=True)
class _Lifetime:
    """The first write and last read of a slot, and the slot whose bytes it takes over."""

    first: int
    last: int
    host: int | None = None


@dataclass(slots=True)
class Assembler:
    """Builds the sections of a blocked kernel: one for each loop level, the two folds, and finalization.

    ``sized``: the steps depend on the sizes of the tile or of its blocks.
    """

    space: BlockedSpace
    registers: list[Register] = field(default_factory=list)
    lives: dict[int, _Lifetime] = field(default_factory=dict)
    sections: list[list[PrimitiveStep]] = field(default_factory=list)
    sized: bool = False
    _iotas: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with empty sections: one for each loop level, the two folds, and finalization."""
        self.sections = [[] for _ in range(self.fresh + 3)]

    @property
    def fresh(self) -> int:
        """The section that folds the first block of a range.

        The next section folds a later block, the one after finalizes.
        """
        return len(self.space.loops) + 1

    def added_section(self) -> int:
        """Add a section, for a kernel that decides when to run it."""
        self.sections.append([])
        return len(self.sections) - 1

    def external(self, kind: RegisterKind, index: int, dtype: np.dtype[Any], labels: Iterable[int]) -> int:
        """Return a register for an operand, an output, or the whole tile of one."""
        return self._new(Register(kind, dtype, _shared(frozenset(labels)), self.space.level(labels), index))

    def slot(self, dtype: np.dtype[Any], labels: Iterable[int], pinned: bool = False) -> int:
        """Return a register in the workspace; a pinned one keeps its bytes during the whole call."""
        register = self._new(Register("slot", dtype, _shared(frozenset(labels)), self.space.level(labels)))
        if pinned:
            self.lives[register] = _Lifetime(-1, 1 << 60)
        return register

    def table(self, dtype: np.dtype[Any], size: int) -> int:
        """Return a vector in the workspace, independent of blocks, that keeps its bytes during the whole call."""
        register = self._new(Register("table", dtype, frozenset(), 0, size))
        self.lives[register] = _Lifetime(-1, 1 << 60)
        return register

    def scalar(self, kind: Literal["start", "size"], label: int) -> int:
        """Return a register for the block's first point or size along a label, a Python number."""
        return self._new(Register(kind, I64.numpy, frozenset(), self.space.level((label,)), label))

    def _new(self, register: Register) -> int:
        self.registers.append(register)
        return len(self.registers) - 1

    def step(self, section: int, run: Operation, arguments: Sequence[int], out: int, name: str = "") -> None:
        """Append a step to a section."""
        self.sections[section].append(PrimitiveStep(run, tuple(arguments), out, name))

    def emit(self, graph: PrimitiveGraph, roots: Sequence[int], section: int | None = None) -> list[int]:
        """Append the steps of the roots and return their registers.

        Each step goes to its own loop level, or all to ``section``.
        """
        placed: dict[int, int] = {}
        for node in reachable_nodes(graph, roots):
            placed[node] = self._emit_node(graph, node, placed, section)
        return [placed[r] for r in roots]

    def _emit_node(self, graph: PrimitiveGraph, node: int, placed: dict[int, int], section: int | None) -> int:
        n = graph[node]
        if n.op == "input":
            assert isinstance(n.payload, int)
            return n.payload
        if n.op == "number":
            assert isinstance(n.payload, bytes)
            array = np.frombuffer(n.payload, n.dtype.numpy).reshape(())
            return self._new(Register("number", n.dtype.numpy, frozenset(), 0, array=array))
        if n.op == "iota":
            assert isinstance(n.payload, int)
            return self._emit_iota(n.payload, section)
        arguments, name = [placed[a] for a in n.arguments], n.op
        if name in ("check", "fetch"):
            return self._emit_special(n, arguments, section)
        if n.op == "select":
            name = _select_kind(graph, n)
            if name == "select_bits":
                labels = graph[n.arguments[0]].labels
                arguments.append(self.slot(mask_type(n.dtype), labels))
        if name == "narrow_bf16":
            arguments.append(self.slot(F32.numpy, n.labels))
        out = self.slot(n.dtype.numpy, n.labels)
        self.step(self.registers[out].level if section is None else section, operation(name), arguments, out, name)
        return out

    def _emit_special(self, node: PrimitiveNode, arguments: list[int], section: int | None) -> int:
        """Append a step with a state of its own; a check returns the register that it tested."""
        run = node.payload
        assert not isinstance(run, int | bytes)
        arguments += [self.scalar("start", p) for p in run.starts]
        if run.scratch is not None:
            arguments += self.two_places(run.scratch)
        out = arguments[0] if node.op == "check" else self.slot(node.dtype.numpy, node.labels)
        rows = run.scratch is not None and not self.space.is_dense(sorted(node.labels))
        name = "fetch" if node.op == "fetch" and not rows else ""
        self.step(self.registers[out].level if section is None else section, run, arguments, out, name)
        return out

    def two_places(self, labels: Iterable[int]) -> list[int]:
        """Return two slots for positions."""
        return [self.slot(I64.numpy, labels) for _ in range(2)]

    def _emit_iota(self, label: int, section: int | None) -> int:
        """Append the label's index: 0, 1, ... of the block, filled once a call, plus the block's first point."""
        if label not in self._iotas:
            self._iotas[label] = self.slot(I64.numpy, (label,), pinned=True)
        level = self.space.level((label,))
        offset = self.scalar("start", label)
        out = self.slot(I64.numpy, (label,))
        self.step(level if section is None else section, np.add, (self._iotas[label], offset), out)
        return out

    def redirect(self, register: int, out: int) -> bool:
        """Let the step that computes a slot write to ``out`` instead; return False if none can."""
        for section in self.sections:
            for index, step in enumerate(section):
                if step.out == register:
                    if step.name == "" or self.registers[register].dtype != self.registers[out].dtype:
                        return False
                    section[index] = replace(step, out=out)
                    return True
        return False

    def finish(self) -> AssembledSteps:
        """Return the steps, with the lifetimes of their slots."""
        self._find_lives()
        own, sections = self.fresh + 3, list(map(tuple, self.sections))
        lives = sorted(self.lives, key=lambda r: (self.lives[r].first, r))
        return AssembledSteps(
            tuple(self.registers),
            tuple(sections[:own]),
            tuple(zip(sections[own::2], sections[own + 1 :: 2], strict=True)),
            tuple(self._iotas.values()),
            tuple((r, self.lives[r].first, self.lives[r].last, self.lives[r].host) for r in lives),
        )

    def _find_lives(self) -> None:
        """Find lifetimes: a slot read in an inner loop must stay alive until that loop ends."""
        starts = list(accumulate((len(section) for section in self.sections), initial=0))
        folded, pinned, made = starts[self.fresh + 2] - 1, set(self.lives), dict[int, int]()
        loops, out_loops = len(self.space.loops), self.space.n_out_loops
        timed = [(s, starts[s] + i, step) for s, steps in enumerate(self.sections) for i, step in enumerate(steps)]
        for section, now, step in timed:
            for register in {*step.arguments, step.out}:
                if self.registers[register].kind == "slot" and register not in pinned:
                    life = self.lives.setdefault(register, _Lifetime(now, now))
                    level = made.setdefault(register, section)
                    turned = (
                        starts[-1] if level < out_loops else folded
                    )  # the finalization runs inside the output's loops
                    life.last = max(life.last, turned if level < min(section, loops) else now)
        for _, now, step in timed:
            self._find_host(now, step, pinned)

    def _find_host(self, now: int, step: PrimitiveStep, pinned: set[int]) -> None:
        """Let a slot take over the bytes of an argument that its step reads for the last time."""
        out, arguments = step.out, step.arguments
        if out not in self.lives or out in pinned or self.lives[out].first != now or not in_place(step.name):
            return
        if step.name == "select_bits":
            arguments = arguments[1:2] if arguments[1] != arguments[2] else ()
        mine = self.registers[out]
        for a in arguments:
            r = self.registers[a]
            dies = a in self.lives and a not in pinned and self.lives[a].last == now and self.lives[a].first < now
            if dies and (r.dtype, r.labels) == (mine.dtype, mine.labels):
                self.lives[out].host = a
                return


@lru_cache(maxsize=1024)
def _shared(labels: frozenset[int]) -> frozenset[int]:
    """Return one object for equal sets, of which kernels keep many."""
    return labels


def _gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    """Return the lowest offset with ``nbytes`` free."""
    start = 0
    for offset, end in taken:
        if offset - start >= nbytes:
            break
        start = max(start, end)
    return start


def reachable_nodes(graph: PrimitiveGraph, roots: Sequence[int]) -> list[int]:
    """Return the nodes that the roots depend on, arguments first."""
    seen = set(roots)
    for node in range(max(roots, default=-1), -1, -1):
        if node in seen:
            seen.update(graph[node].arguments)
    return sorted(seen)


def _select_kind(graph: PrimitiveGraph, node: PrimitiveNode) -> str:
    wide = node.dtype.kind == "c"
    return "select_runs" if wide or graph.data_free(node.arguments[0]) else "select_bits"
