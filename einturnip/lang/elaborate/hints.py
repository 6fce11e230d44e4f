"""Hints: requests of a program for the plan of one statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

from einturnip.core.diagnostics import did_you_mean
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.scope import NameScope
from einturnip.lang.expressions import SizeExpr, SizeLiteral
from einturnip.lang.program import EquationLabel, PlanHint

Kind = Literal["tile", "place", "keep", "recompute"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_DEVICE = re.compile(r"(\w+)(:\d+)?", re.ASCII)


def hints_of(
    scope: NameScope, hints: Sequence[s.HintNode], labels: Sequence[EquationLabel], elsewhere: frozenset[str]
) -> tuple[PlanHint, ...]:
    """Elaborate the hints of an equation with these labels; reports errors.

    ``elsewhere`` are labels of the statement that its other equations may have instead.
    """
    found: dict[str, PlanHint] = {}
    for hint in hints:
        kind = next(kind for kind in _KINDS if kind == hint.kind)
        if kind in found:
            scope.conflict("E075", f"'@{kind}' stands twice", hint.span, found[kind].span, "first here")
        tiles = _tiles(scope, hint, labels, elsewhere) if kind == "tile" else ()
        device = _device(scope, hint) if kind == "place" else ""
        found[kind] = PlanHint(kind, tiles, device, hint.span)
    if "keep" in found and "recompute" in found:
        message = "'@keep' and '@recompute' exclude each other"
        scope.conflict("E075", message, found["recompute"].span, found["keep"].span, "the other")
    return tuple(found.values())


def _device(scope: NameScope, hint: s.HintNode) -> str:
    from einturnip.devices.kind import is_name  # most programs place nothing

    device = hint.arguments[0].text
    named = _DEVICE.fullmatch(device)
    if named is None or not is_name(named[1]):
        help_text = "write @place(cpu) or @place(cuda:0)"
        scope.error("E075", f"'{device}' is no device", hint.arguments[0].span, help_text)
    return device


def _tiles(
    scope: NameScope, hint: s.HintNode, labels: Sequence[EquationLabel], elsewhere: frozenset[str]
) -> tuple[tuple[int, SizeExpr, bool], ...]:
    found: dict[int, tuple[int, SizeExpr, bool]] = {}
    names = [label.name for label in labels]
    for argument in hint.arguments:
        name, value = argument.name, argument.value
        if name not in names or value is None:
            if name not in elsewhere:
                shown = [n for n in dict.fromkeys((*names, *sorted(elsewhere))) if n.isidentifier()]
                help_text = did_you_mean(name, shown) or f"its labels are {', '.join(shown)}" * bool(shown)
                scope.error("E075", f"the statement has no label '{name}' to cut", argument.span, help_text)
            continue
        number = names.index(name)
        size = scope.size(value)
        if number in found:
            scope.error("E075", f"'{name}' stands twice in '@tile'", argument.span)
        elif isinstance(size, SizeLiteral) and size.value < 1:
            what = "number of parts" if argument.parts else "extent"
            scope.error("E075", f"the {what} of '{name}' is at least 1", argument.span, found=str(size.value))
        elif size is not None:
            found[number] = (number, size, argument.parts)
    return tuple(found.values())
