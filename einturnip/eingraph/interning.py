"""Equal einsums as one object, so that what was found out about one need not be found out again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from einturnip.eingraph.builder import NodeDraft
from einturnip.ir.einsum import Einsum
from einturnip.ir.scalar import ScalarConst, walk

T = TypeVar("T")


class EinsumInterner:
    """Einsums by identity, and what is known of them. Lives as long as one graph is built or rewritten."""

    def __init__(self) -> None:
        self._one: dict[Hashable, Einsum] = {}
        self._by_id: dict[int, tuple[Einsum, Einsum]] = {}
        self._found: dict[Hashable, object] = {}
        self._numbers: dict[Hashable, int] = {}

    def one(self, einsum: Einsum) -> Einsum:
        """The einsum that stands for all equal ones."""
        found = self._by_id.get(id(einsum))
        if found is None:
            # 0.0 equals -0.0 but is not it. The einsum itself is kept too, so that its id is not given to another.
            constants = tuple(repr(e.value) for e in walk(einsum.join) if isinstance(e, ScalarConst))
            found = self._by_id[id(einsum)] = einsum, self._one.setdefault((einsum, constants), einsum)
        return found[1]

    def draft(self, draft: NodeDraft) -> NodeDraft:
        """A draft whose einsum stands for all equal ones."""
        einsum = self.one(draft.einsum)
        return draft if einsum is draft.einsum else replace(draft, einsum=einsum)

    def once(self, find: Callable[..., T], key: Hashable, *arguments: object) -> T:
        """What ``find`` gave when it was first asked for; in ``key`` einsums that came from ``one`` stand by id."""
        key = find, key
        if key not in self._found:
            self._found[key] = find(*arguments)
        return self._found[key]  # type: ignore[return-value]

    def number(self, value: Hashable) -> int:
        """A number that stands for a value."""
        return self._numbers.setdefault(value, len(self._numbers))


def pattern(operands: Sequence[int]) -> tuple[int, ...]:
    """Operands numbered in the order in which each first stands: which of them are one."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(operand, len(seen)) for operand in operands)


def distinct(operands: Sequence[int]) -> tuple[int, ...]:
    """The operands that the numbers of ``pattern`` stand for."""
    return tuple(dict.fromkeys(operands))
