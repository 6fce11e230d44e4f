"""Hints: what a program asks of the plan for one statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

from einturnip.core.diagnostics import did_you_mean
from einturnip.lang import syntax as s
from einturnip.lang.scope import Scope
from einturnip.lang.types import Hint, Label, SizeExpr, SizeLiteral

Kind = Literal["tile", "place", "keep", "recompute"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_DEVICE = re.compile(r"(cpu|cuda|sim)(:\d+)?")


def hints_of(scope: Scope, hints: Sequence[s.Hint], labels: Sequence[Label]) -> tuple[Hint, ...]:
    """The hints of an equation with these labels; what is wrong is noted."""
    found: dict[Kind, Hint] = {}
    for hint in hints:
        kind = next((kind for kind in _KINDS if kind == hint.kind), None)
        if kind is None:
            help_text = did_you_mean(hint.kind, _KINDS) or f"hints are {', '.join(f'@{k}' for k in _KINDS)}"
            scope.error("E075", f"there is no hint '@{hint.kind}'", hint.span, help_text)
        elif kind in found:
            scope.conflict("E075", f"'@{kind}' stands twice", hint.span, found[kind].span, "first here")
        else:
            found[kind] = _hint(scope, hint, kind, labels)
    if "keep" in found and "recompute" in found:
        message = "'@keep' and '@recompute' exclude each other"
        scope.conflict("E075", message, found["recompute"].span, found["keep"].span, "the other")
    return tuple(found.values())


def _hint(scope: Scope, hint: s.Hint, kind: Kind, labels: Sequence[Label]) -> Hint:
    if kind in ("keep", "recompute") and hint.arguments:
        scope.error("E075", f"'@{kind}' takes nothing in parentheses", hint.span, f"write @{kind}")
    tiles = _tiles(scope, hint, labels) if kind == "tile" else ()
    device = _device(scope, hint) if kind == "place" else ""
    return Hint(kind, tiles, device, hint.span)


def _device(scope: Scope, hint: s.Hint) -> str:
    device = hint.arguments[0].text if len(hint.arguments) == 1 else ""
    if not _DEVICE.fullmatch(device):
        scope.error("E075", "'@place' names one device", hint.span, "write @place(cpu) or @place(cuda:0)")
    return device


def _tiles(scope: Scope, hint: s.Hint, labels: Sequence[Label]) -> tuple[tuple[int, SizeExpr, bool], ...]:
    found: dict[int, tuple[int, SizeExpr, bool]] = {}
    names = [label.name for label in labels]
    if not hint.arguments:
        scope.error("E075", "'@tile' names labels and their extents", hint.span, "write @tile(i = 256, j = 4 parts)")
    for argument in hint.arguments:
        if argument.name not in names or argument.value is None:
            help_text = did_you_mean(argument.name, names) or f"its labels are {', '.join(names)}" * bool(names)
            message = f"the statement has no label '{argument.name or argument.text}' to cut"
            scope.error("E075", message, argument.span, help_text)
            continue
        number = names.index(argument.name)
        if number in found:
            scope.error("E075", f"'{argument.name}' stands twice in '@tile'", argument.span)
            continue
        size = scope.size(argument.value)
        if isinstance(size, SizeLiteral) and size.value < 1:
            what = "number of parts" if argument.parts else "extent"
            scope.error("E075", f"the {what} of '{argument.name}' is at least 1", argument.span, found=str(size.value))
        elif size is not None:
            found[number] = (number, size, argument.parts)
    return tuple(found.values())
