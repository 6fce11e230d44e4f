"""Runs LALR tables in a loop that is several times as fast as Lark's parser for the same tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from einturnip.core import package_data
from einturnip.lang.lexer import LexToken

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
