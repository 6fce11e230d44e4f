"""``import``: loads the functions of another file or of the standard library."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from einturnip.core import package_data
from einturnip.core.diagnostics import Diagnostic, Edit, Span, nearest
from einturnip.core.errors import InternalError, SourceError
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.draft import ProgramDraft
from einturnip.lang.source_text import read_text
from einturnip.lang.syntax.parser import parse


@dataclass
class Imports:
    """The files read so far by path: ``open`` are being elaborated, ``done`` are finished."""

    draft: ProgramDraft
    trees: dict[str, s.SyntaxTree] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def tree(self, node: s.Import, importer: str) -> s.SyntaxTree | None:
        """The syntax tree of an imported file; None if there is none (reported).

        Shapes:
            importer: the file that imports; relative paths count from its folder.
        """
        path = node.path if node.standard else _path(node.path, importer)
        if path in self.open:
            chain = " imports ".join(f"'{_shown(p)}'" for p in (*self.open[self.open.index(path) :], path))
            self._error("E071", f"these files import each other: {chain}", node.span, "move what both need to a third")
            return None
        if path not in self.trees:
            found = self._read(node, path)
            if found is None:
                return None
            self.trees[path] = found
            self.draft.files[found.file] = found.source
        return self.trees[path]

    def _read(self, node: s.Import, path: str) -> s.SyntaxTree | None:
        try:
            if node.standard:
                return _standard_tree(node.path.removeprefix("std."))
            return parse(read_text(path), path)
        except SourceError as problem:
            self.draft.problems += problem.diagnostics
        except FileNotFoundError:
            near = nearest(Path(path).name, _programs(Path(path).parent))
            help_text = f"did you mean '{near}'?" if near else "the path counts from the folder of this file"
            self._error("E070", f"there is no file '{node.path}' to import", node.span, help_text)
        except (OSError, UnicodeDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "it is no text in UTF-8"
            self._error("E070", f"'{node.path}' cannot be read: {reason}", node.span)
        except KeyError:
            known = standard_modules()
            meant = nearest(node.path, known)
            help_text = f"did you mean '{meant}'?" if meant else f"there are {', '.join(known)}"
            edits = (Edit(node.span, meant),) if meant and self.draft.text(node.span) == node.path else ()
            message = f"there is no '{node.path}' in the standard library"
            self.draft.problems.append(Diagnostic("E070", message, node.span, help=help_text, edits=edits))
        return None

    def _error(self, code: str, message: str, span: Span, help_text: str = "") -> None:
        self.draft.problems.append(Diagnostic(code, message, span, help=help_text))


def _path(path: str, importer: str) -> str:
    """Resolve a relative path against the folder of the importing file, which need not be saved yet.

    A text without a file has no folder in its name, so its paths count from the current one.
    """
    folder = os.path.dirname(importer)
    return os.path.normpath(os.path.join(folder, path))


def _shown(path: str) -> str:
    return os.path.basename(path)


def _programs(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


@cache
def standard_modules() -> tuple[str, ...]:
    """The names of the standard library's files: ``std.nn`` and the others."""
    try:
        folder = package_data.folder("grammar") / "std"
    except InternalError:
        return ()
    return tuple(sorted(f"std.{path.stem}" for path in folder.glob("*.ein")))


@cache
def _standard_tree(name: str) -> s.SyntaxTree:
    if f"std.{name}" not in standard_modules():
        raise KeyError(name)
    return parse(package_data.text("grammar", f"std/{name}.ein"), f"std.{name}")


def modules_with(function: str) -> tuple[str, ...]:
    """The standard library modules that define a function of this name."""
    pattern = re.compile(rf"^fn {re.escape(function)}\b", re.MULTILINE)
    names = (module.removeprefix("std.") for module in standard_modules())
    return tuple(f"std.{name}" for name in names if pattern.search(package_data.text("grammar", f"std/{name}.ein")))
