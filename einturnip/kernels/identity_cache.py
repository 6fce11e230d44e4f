"""A cache for objects that are slow to hash, as einsums are: that takes longer than a small kernel."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class IdentityCache(Generic[_Value]):
    """Values by the identity of an object and a key. It keeps the objects, so that no id is used again.

    ``max_size``: the number of values with which it is full; it is then emptied.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._found: dict[tuple[int, Hashable], tuple[Any, _Value]] = {}

    def get(self, owner: object, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """Return the value for an object and a key; ``make`` returns one that is not there yet."""
        place = id(owner), key
        found = self._found.get(place)
        if found is None or found[0] is not owner:
            found = owner, make()
            if len(self._found) >= self._max_size:
                self._found.clear()
            self._found[place] = found
        return found[1]
