"""Parses text to a syntax tree, by LALR tables.

Recovers after each statement, so that all bad ones are reported. The loop over the tables is several times as fast as
Lark's parser for the same tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from einturnip.core import package_data
from einturnip.core.diagnostics import Diagnostic, with_source
from einturnip.core.errors import SourceError
from einturnip.core.process_resources import gc_paused
from einturnip.core.program_limits import checkpoint
from einturnip.lang.lexer import LexToken, tokenize
from einturnip.lang.source_text import normalize_newlines
from einturnip.lang.syntax.chunks import OUTSIDE, BlockToken, StatementChunk, statements
from einturnip.lang.syntax.tree_builder import Return, TreeBuilder, TreeError
from einturnip.lang.syntax_tree import Declaration, SyntaxTree

FILE = "ein.tables.json"
END = "$END"
_ACCEPT = -1

Tables: TypeAlias = Mapping[str, Any]
"""``start`` and ``end``: numbers of states. ``states[n]``: by symbol, the state after it, or ``[rule]`` to reduce.
``rules``: see ``tables._rule``."""


def load_tables() -> Tables:
    """Load the shipped tables."""
    tables: Tables = json.loads(package_data.text("grammar", FILE))
    return tables


class Unexpected(Exception):
    """An unexpected token at ``position`` (past the last: the statement's end); ``expected`` is allowed."""

    def __init__(self, position: int, expected: set[str]) -> None:
        super().__init__(position)
        self.position = position
        self.expected = expected


class _Reduction(NamedTuple):
    """Pop ``size`` values and push the result of ``build``; None for a rule that passes its part on."""

    size: int
    rule: str
    build: Callable[[list[Any]], Any] | None


class Automaton:
    """The states of a parser.

    ``table[state][token type]`` is the state after a shift, or a reduction; ``table[state][rule]`` is the state after
    that.
    """

    def __init__(self, tables: Tables, builder: object) -> None:
        reductions = [_reduction(rule, builder) for rule in tables["rules"]]
        self.start: int = tables["start"]
        self.table: list[dict[str, int | _Reduction]] = [
            {symbol: to if to.__class__ is int else reductions[to[0]] for symbol, to in row.items()}
            for row in tables["states"]
        ]
        self.table[tables["end"]][END] = _ACCEPT
        self.kinds = {kind for row in self.table for kind in row if kind.isupper() or kind == END}
        self._jumps: dict[tuple[int, int, str], int] = {}

    def parse(self, tokens: Sequence[LexToken]) -> Any:
        """Parse tokens and return the result of the grammar's start rule.

        Raises:
            Unexpected: they are not a statement.
        """
        table, jumps = self.table, self._jumps
        state = self.start
        states = [state]
        values: list[Any] = []
        kinds = [token.type for token in tokens]
        kinds.append(END)
        for position, kind in enumerate(kinds):
            while True:
                action = table[state].get(kind)
                if action.__class__ is int:
                    break
                if action is None:
                    raise Unexpected(position, self._expected(kinds[:position]))
                size, rule, build = action  # type: ignore[misc]  # it is no int
                if build is None:
                    key = (states[-2], state, kind)
                    state = jumps[key] if key in jumps else self._jump(key)
                    states[-1] = state
                    continue
                if size:
                    parts = values[-size:]
                    del values[-size:], states[-size:]
                else:
                    parts = []
                values.append(build(parts))
                state = table[states[-1]][rule]  # type: ignore[assignment]  # after a rule stands a state
                states.append(state)
            if action == _ACCEPT:
                return values[-1]
            state = action
            states.append(state)
            values.append(tokens[position])

    def _expected(self, kinds: Sequence[str]) -> set[str]:
        """The types of tokens that may follow these."""
        states = [self.start]
        for kind in kinds:
            self._step(states, kind)
        return {kind for kind in self.kinds if self._step(states.copy(), kind)}

    def _step(self, states: list[int], kind: str) -> bool:
        """Process a token without building; returns whether it is allowed."""
        while True:
            action = self.table[states[-1]].get(kind)
            if action is None:
                return False
            if isinstance(action, int):
                states.append(action)
                return True
            del states[len(states) - action.size :]
            after = self.table[states[-1]][action.rule]
            assert isinstance(after, int)
            states.append(after)

    def _jump(self, key: tuple[int, int, str]) -> int:
        """Compute and cache the state after a chain of rules that only pass their part on."""
        below, state, kind = key
        while True:
            action = self.table[state].get(kind)
            if not isinstance(action, _Reduction) or action.build is not None:
                break
            after = self.table[below][action.rule]
            assert isinstance(after, int)
            state = after
        self._jumps[key] = state
        return state


def _reduction(rule: Mapping[str, Any], builder: object) -> _Reduction:
    """Combine a rule of the tables with the builder's method for it."""
    size, takes, absent, single = rule["size"], rule["takes"], rule["absent"], rule["single"]
    if single and takes == [[0, 0, False]] and size == 1 and not absent:
        return _Reduction(size, rule["rule"], None)
    make: Callable[[list[Any]], Any] = getattr(builder, rule["build"]) if rule["build"] else _parts
    if takes == [[0, place, False] for place in range(size)] and not absent and not single:
        return _Reduction(size, rule["rule"], make)

    def build(parts: list[Any]) -> Any:
        found: list[Any] = []
        for before, place, taken_apart in takes:
            found += [None] * before
            if taken_apart:
                found += parts[place]
            else:
                found.append(parts[place])
        found += [None] * absent
        return found[0] if single and len(found) == 1 else make(found)

    return _Reduction(size, rule["rule"], build)


def _parts(parts: list[Any]) -> list[Any]:
    """The result of a rule that Lark generates for a repetition: the enclosing rule takes its parts."""
    return parts


def parse(text: str, file: str = "<text>") -> SyntaxTree:
    """Parse a program's text.

    Raises:
        SourceError: with at least one diagnostic for every statement with a syntax error.
    """
    text = normalize_newlines(text)
    reader = _Parser()
    with gc_paused():
        declarations, _ = reader.read(statements(tokenize(text, file)), None)
    lines = tuple(text.split("\n"))
    if reader.problems:
        ordered = sorted(reader.problems, key=lambda problem: problem.span[1:3])
        raise SourceError([with_source(problem, lines) for problem in ordered])
    return SyntaxTree(declarations, file, lines)


def _misplaced(
    chunks: Sequence[StatementChunk], position: int, head: LexToken | None, block: BlockToken | None
) -> Diagnostic | None:
    """Report a statement that is not allowed in the block that ``head`` begins, or outside of blocks."""
    first = chunks[position].tokens[0] if chunks[position].tokens else None
    if first is None:
        return None
    if first.type in OUTSIDE and head is not None:
        message = f"'{first.text}' is not allowed in a block"
        return Diagnostic("E011", message, first.span, help="move it before or after the block")
    if first.type != "_RETURN":
        return None
    if head is not None and head.type in ("_FOR", "_WHILE"):
        message = "'return' is not allowed in a loop"
        return Diagnostic("E011", message, first.span, help="end the block of the function with it")
    if head is None and not _after_lost_head(chunks, position):
        message = "'return' is allowed only in the block of a function"
        return Diagnostic("E011", message, first.span, help="to name a result of the program, write output")
    if block is not None and block.close is not None and position + 1 < len(chunks):
        message = "'return' is not the last statement of its block"
        return Diagnostic("E011", message, first.span, help="delete what stands behind it")
    return None


def _after_lost_head(chunks: Sequence[StatementChunk], position: int) -> bool:
    """True if a function without a recognized block begins before; reporting that is enough."""
    from einturnip.lang.diagnose.statement_errors import FUNCTION_WORDS

    for chunk in reversed(chunks[:position]):
        if not chunk.tokens or isinstance(chunk.tokens[-1], BlockToken) or chunk.tokens[0].type == "_RETURN":
            return False
        first = chunk.tokens[0]
        if first.type == "_FN" or first.text in FUNCTION_WORDS:
            return True
    return False


class _Parser:
    """Reads statements and collects their errors."""

    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []
        self.automaton = _automaton()

    def read(
        self, chunks: Sequence[StatementChunk], head: LexToken | None, block: BlockToken | None = None
    ) -> tuple[tuple[Declaration, ...], Return | None]:
        """Read the statements of the block that ``head`` begins, or of the whole text, and its return."""
        declarations: list[Declaration] = []
        returned: Return | None = None
        for position, chunk in enumerate(chunks):
            checkpoint()
            if self._block(chunk):
                continue
            if problem := _misplaced(chunks, position, head, block):
                self.problems.append(problem)
                continue
            if chunk.problems:
                self.problems += chunk.problems + _needing_no_grammar(chunk.tokens)
                continue
            result = self._statement(chunk.tokens)
            if isinstance(result, Return):
                returned = result
            else:
                declarations += result
        return tuple(declarations), returned

    def _block(self, chunk: StatementChunk) -> bool:
        """Read the block at the end of a statement; returns whether its errors suffice for the statement too."""
        block = chunk.tokens[-1] if chunk.tokens else None
        if not isinstance(block, BlockToken):
            return False
        before = len(self.problems)
        block.body, returned = self.read(block.chunks, chunk.tokens[0], block)
        block.returns = returned.values if returned else None
        return len(self.problems) > before and block.returns is None and not chunk.problems

    def _statement(self, tokens: Sequence[LexToken]) -> list[Declaration] | Return:
        """Parse one statement, or report its error."""
        try:
            result: list[Declaration] | Return = self.automaton.parse(tokens)
            return result
        except (Unexpected, TreeError) as problem:
            self.problems += _needing_no_grammar(tokens) or [_explained(tokens, problem)]
        return []


def _needing_no_grammar(tokens: Sequence[LexToken]) -> list[Diagnostic]:
    """Report foreign characters and notations, which no statement has."""
    from einturnip.lang.diagnose.syntax_errors import before_parsing  # programs without errors do not load it

    return before_parsing(tokens)


def _explained(tokens: Sequence[LexToken], problem: Unexpected | TreeError) -> Diagnostic:
    if isinstance(problem, TreeError):
        return problem.diagnostic
    from einturnip.lang.diagnose.syntax_errors import explain

    return explain(list(tokens), problem.position, problem.expected)


@lru_cache(maxsize=1)
def _automaton() -> Automaton:
    """The parser."""
    return Automaton(load_tables(), TreeBuilder())
