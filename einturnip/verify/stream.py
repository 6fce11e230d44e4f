"""Incremental JSON parser: reads one element of a long list at a time, in bounded memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from einturnip.verify.types import NotAPlan

CHUNK_NBYTES = 1 << 20
# If the text read so far ends inside a literal or an escape, the error is at most this many characters before its end.
CUT_SHORT = 16
_OF_NUMBERS = "+-.0123456789eE"
_SPACE = re.compile(r"[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")


class JsonText:
    """A cursor over a stream of UTF-8 JSON.

    Raises:
        NotAPlan: not JSON, with the line and column.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self._read: Callable[[int], bytes] = stream.read
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
        self._text = ""
        self._at = 0
        self._ended = False
        self._nbytes = 0
        self._line, self._column = 1, 1  # position of the text's first character

    def peek(self) -> str:
        """Return the next character that is not white space; '' at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def expect(self, char: str) -> None:
        """Skip ``char``, which must come next."""
        if self.peek() != char:
            self._fail(f"expected '{char}'", self._at)
        self._at += 1

    def value(self) -> Any:
        """Return the next complete value."""
        self.peek()
        while True:
            try:
                found, end = self._scan(self._text, self._at)
                # A number at the end of the text may continue, even if its beginning is a number: 1e5 begins with 1.
                open_ended = len(self._text) - end <= CUT_SHORT and not self._text[end:].strip(_OF_NUMBERS)
                if not open_ended or not self._read_more():
                    self._at = end
                    return found
                continue
            except StopIteration as stop:
                what, where = "expected a value", int(stop.value)
            except json.JSONDecodeError as error:
                what, where = error.msg[:1].lower() + error.msg[1:], error.pos
            except RecursionError:
                self._fail("lists or objects are nested too deeply", self._at)
            except ValueError as error:
                self._fail(str(error), self._at)
            distance = len(self._text) - where
            open_ended = distance <= CUT_SHORT or what.startswith("unterminated string")
            if not (open_ended and self._read_more(distance)):
                self._fail(what, min(where, len(self._text)))

    def items(self) -> Iterator[str]:
        """Yield the keys of an object; the caller reads each value before the next key."""
        self.expect("{")
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            at = self._at
            key = self.value()
            if not isinstance(key, str):
                self._fail("expected a name in double quotes", at)
            self.expect(":")
            yield key
            if not self._comma("}"):
                return

    def batches(self, size: int) -> Iterator[list[Any]]:
        """Yield the elements of a list, ``size`` at a time."""
        self.expect("[")
        if self.peek() == "]":
            self._at += 1
            return
        batch = []
        while True:
            batch.append(self.value())
            more = self._comma("]")
            if len(batch) == size or not more:
                yield batch
                batch = []
            if not more:
                return

    def end(self) -> None:
        """Require that only white space remains."""
        if self.peek():
            self._fail("expected the end of the text", self._at)

    def _comma(self, closing: str) -> bool:
        """Skip a comma and return True, or skip the closing bracket and return False."""
        found = _COMMA.match(self._text, self._at)
        if found is not None and found.end() < len(self._text):
            self._at = found.end()
            return True
        char = self.peek()
        if char not in (",", closing):
            self._fail(f"expected ',' or '{closing}'", self._at)
        self._at += 1
        return char == ","

    def _read_more(self, distance: int = 0) -> bool:
        """Read more text and drop the text before the cursor; return False at the end."""
        if self._ended:
            return False
        lines = self._text.count("\n", 0, self._at)
        if lines:
            self._line += lines
            self._column = self._at - self._text.rfind("\n", 0, self._at)
        else:
            self._column += self._at
        unread = self._text[self._at :]
        # Double the amount each time, so that a long value is scanned only a few times.
        data = self._read(max(CHUNK_NBYTES, len(unread)))
        try:
            self._text = unread + self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            where = self._nbytes + error.start
            raise NotAPlan(f"{self.name} is not JSON: about byte {where} is not UTF-8 text") from None
        self._nbytes += len(data)
        self._at = 0
        self._ended = not data
        return True

    def _fail(self, what: str, where: int) -> Any:
        lines = self._text.count("\n", 0, where)
        line = self._line + lines
        column = where - self._text.rfind("\n", 0, where) if lines else self._column + where
        raise NotAPlan(f"{self.name} is not JSON: line {line}, column {column}: {what}")
