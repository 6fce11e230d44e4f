"""Parses a JSON object's members one by one: a fully parsed header takes ten times its size."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_PIECE_NBYTES = 1 << 16
_NO_BLANK = re.compile(r"[^ \t\r\n]")
# Limit for one value, each of which may take 250 bytes after parsing.
_MAX_MARKS = 50_000


class JsonMembers:
    """Reads an object's members sequentially.

    ``read(offset, nbytes)`` returns bytes of its text, which has ``nbytes`` bytes. A member has at most
    ``longest(name)`` characters.
    """

    def __init__(
        self, read: Callable[[int, int], bytes | bytearray], nbytes: int, longest: Callable[[str], int]
    ) -> None:
        self._read, self._nbytes, self._longest = read, nbytes, longest
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._offset = "", 0, 0

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values.

        Raises:
            ValueError: the text is not a JSON object, or a member is too long.
        """
        self._expect("{")
        if self._next() == "}":
            return
        while True:
            name = self._value(_PIECE_NBYTES)
            if not isinstance(name, str):
                raise ValueError(f"{name!r} instead of a name")
            self._expect(":")
            self._next()
            yield name, self._value(self._longest(name))
            if self._expect(",}") == "}":
                return
            self._next()

    def _value(self, longest: int) -> Any:
        self._more(longest)
        end = self._at + longest
        if longest > _PIECE_NBYTES and sum(self._text.count(mark, self._at, end) for mark in "[{,") > _MAX_MARKS:
            raise ValueError(f"it lists more than {_MAX_MARKS:,} values in one place")
        try:
            value, stop = json.JSONDecoder().raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            if self._offset < self._nbytes and error.pos >= end - 1:
                raise ValueError(f"one of its entries is longer than {longest:,} characters") from None
            raise ValueError(f"{error.msg} at character {error.pos - self._at} of an entry") from None
        if stop > end:
            raise ValueError(f"one of its entries is longer than {longest:,} characters")
        self._at = stop
        return value

    def _expect(self, characters: str) -> str:
        found = self._next()
        if found not in characters:
            raise ValueError(f"{found!r} where {' or '.join(map(repr, characters))} should be")
        self._at += 1
        return found

    def _next(self) -> str:
        """The next non-blank character, which is not consumed."""
        while (found := _NO_BLANK.search(self._text, self._at)) is None:
            self._at = len(self._text)
            self._more(1)
            if not self._text:
                raise ValueError("it ends early")
        self._at = found.start()
        return self._text[self._at]

    def _more(self, characters: int) -> None:
        """Buffer this number of characters of the remaining text, or all of it."""
        if len(self._text) - self._at >= characters or self._offset == self._nbytes:
            if self._at == len(self._text):
                self._text, self._at = "", 0
            return
        pieces = [self._text[self._at :]]
        length = len(pieces[0])
        while length < characters + _PIECE_NBYTES and self._offset < self._nbytes:
            raw = self._read(self._offset, min(_PIECE_NBYTES, self._nbytes - self._offset))
            self._offset += len(raw)
            pieces.append(self._decoder.decode(raw, final=self._offset == self._nbytes))
            length += len(pieces[-1])
        self._text, self._at = "".join(pieces), 0
