"""Interns equal einsums as one object, and caches results computed for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from einturnip.eingraph.builder import NodeDraft
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import ScalarConst, walk

T = TypeVar("T")


class EinsumInterner:
    """Canonical einsums, and results cached by identity, for one graph's construction or rewriting."""

    def __init__(self) -> None:
        self._one: dict[Hashable, Einsum] = {}
        self._by_id: dict[int, tuple[Einsum, Einsum]] = {}
        self._found: dict[Hashable, object] = {}
        self._numbers: dict[Hashable, int] = {}

    def one(self, einsum: Einsum) -> Einsum:
        """Return the canonical object for equal einsums."""
        found = self._by_id.get(id(einsum))
        if found is None:
            # 0.0 equals -0.0 but is different. The einsum itself is kept alive too, so that its id is not reused.
            constants = tuple(repr(e.value) for e in walk(einsum.join) if isinstance(e, ScalarConst))
            found = self._by_id[id(einsum)] = einsum, self._one.setdefault((einsum, constants), einsum)
        return found[1]

    def draft(self, draft: NodeDraft) -> NodeDraft:
        """Return a draft with a canonical einsum."""
        einsum = self.one(draft.einsum)
        return draft if einsum is draft.einsum else replace(draft, einsum=einsum)

    def once(self, find: Callable[..., T], key: Hashable, *arguments: object) -> T:
        """Return the cached result of ``find``; ``key`` refers to canonical einsums by id."""
        key = find, key
        if key not in self._found:
            self._found[key] = find(*arguments)
        return self._found[key]  # type: ignore[return-value]

    def number(self, value: Hashable) -> int:
        """Return a number that identifies a value."""
        return self._numbers.setdefault(value, len(self._numbers))


def pattern(operands: Sequence[int]) -> tuple[int, ...]:
    """Number operands by first occurrence, which shows the equal ones."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(operand, len(seen)) for operand in operands)


def distinct(operands: Sequence[int]) -> tuple[int, ...]:
    """The operands that the numbers of ``pattern`` denote."""
    return tuple(dict.fromkeys(operands))
