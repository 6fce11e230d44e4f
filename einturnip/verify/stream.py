"""JSON read piece by piece: one element of a long list at a time, so that its length costs no memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from einturnip.verify.types import NotAPlan

CHUNK_NBYTES = 1 << 20
# Where what was read so far ends inside a literal or an escape, the error stands so few characters before that end.
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
        self._line, self._column = 1, 1  # of the text's first character

    def peek(self) -> str:
        """The next character that is no white space; '' at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def expect(self, char: str) -> None:
        """Step over ``char``."""
        if self.peek() != char:
            self._fail(f"expected '{char}'", self._at)
        self._at += 1

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                found, end = self._scan(self._text, self._at)
                # A number at the end of what was read may go on, also where a part of it reads as one: 1e is 1 so far.
                open_ended = len(self._text) - end <= CUT_SHORT and not self._text[end:].strip(_OF_NUMBERS)
                if not open_ended or not self._more():
                    self._at = end
                    return found
                continue
            except StopIteration as stop:
                what, where = "expected a value", int(stop.value)
            except json.JSONDecodeError as error:
                what, where = error.msg[:1].lower() + error.msg[1:], error.pos
            except RecursionError:
                self._fail("lists or objects stand in one another too deeply", self._at)
            except ValueError as error:
                self._fail(str(error), self._at)
            distance = len(self._text) - where
            open_ended = distance <= CUT_SHORT or what.startswith("unterminated string")
            if not (open_ended and self._more(distance)):
                self._fail(what, min(where, len(self._text)))

    def items(self) -> Iterator[str]:
        """The keys of an object, each before its value, which the caller takes."""
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
        """The elements of a list, ``size`` at a time."""
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
        """Nothing but white space is left."""
        if self.peek():
            self._fail("expected the end of the text", self._at)

    def _comma(self, closing: str) -> bool:
        """Step over a comma, or over the closing bracket: then False."""
        found = _COMMA.match(self._text, self._at)
        if found is not None and found.end() < len(self._text):
            self._at = found.end()
            return True
        char = self.peek()
        if char not in (",", closing):
            self._fail(f"expected ',' or '{closing}'", self._at)
        self._at += 1
        return char == ","

    def _more(self, distance: int = 0) -> bool:
        """Read on; False at the end. What lies before the cursor is given up."""
        if self._ended:
            return False
        lines = self._text.count("\n", 0, self._at)
        if lines:
            self._line += lines
            self._column = self._at - self._text.rfind("\n", 0, self._at)
        else:
            self._column += self._at
        kept = self._text[self._at :]
        # Twice as much each time, so that one long value is scanned few times.
        data = self._read(max(CHUNK_NBYTES, len(kept)))
        try:
            self._text = kept + self._decoder.decode(data, final=not data)
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
