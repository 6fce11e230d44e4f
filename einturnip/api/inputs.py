"""Opens the inputs of a program: its file, and the sources of its inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.api.program_cache import compile_cached
from einturnip.api.results import File
from einturnip.core.diagnostics import Diagnostic, did_you_mean, with_source
from einturnip.core.errors import BindError, SourceError, StoreError
from einturnip.lang.program import FileRef, InputDef, TypedProgram
from einturnip.lang.source_text import program_name, program_text, universal
from einturnip.storage.location import is_url
from einturnip.storage.open import open_source
from einturnip.storage.types import Array, Source, expanded_to


def compile_path(path: Path) -> TypedProgram:
    """Compile the program in a file, or from standard input.

    Raises:
        SourceError: the program has errors. BindError: there is no such file, or it is not text.
    """
    return compile_cached(universal(program_text(path)), program_name(path))


def require_output(program: TypedProgram) -> None:
    """Refuse to run a program without outputs.

    Raises:
        SourceError: names its last equation. BindError: it has none.
    """
    if program.outputs or program.updates:
        return
    message = "nothing is an output, so there is nothing to compute"
    found = [replace(w, code="E026", message=message, severity="error") for w in program.warnings if w.code == "W002"]
    if found:
        raise SourceError(found)
    raise BindError(f"{program.file} has no equation and no output. help: write y[i] = 2 * x[i] and output y")


def check_names(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that the program lacks, and suggest the nearest one."""
    known = tuple(known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
            raise BindError(f"the program has no {kind} '{name}'; {hint}")


def file_spec(reference: FileRef, folder: Path) -> str:
    """The path of a file that a program names relative to itself."""
    path = reference.path if is_url(reference.path) else str(folder / reference.path)
    return path if reference.key is None else f"{path}::{reference.key}"


def open_inputs(
    program: TypedProgram,
    given: Mapping[str, Any],
    folder: Path,
    lenient: bool,
    reading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Source]:
    """Open the sources of all inputs that are given or have a default in the program.

    ``lenient``: a missing default file is not an error, because it will not be read. ``reading``: returns the context
    for files, whose packages take memory.

    Raises:
        BindError: an input that the program lacks, or of another dtype. StoreError: a file cannot be read.
    """
    check_names("input", given, (tensor.name for tensor in program.inputs))
    sources: dict[str, Source] = {}
    try:
        for tensor in program.inputs:
            spec = given.get(tensor.name, tensor.default)
            with reading() if isinstance(spec, str | os.PathLike | FileRef) else nullcontext():
                source = open_input(tensor, spec, program, folder, lenient)
            if source is not None:
                sources[tensor.name] = source
    except BaseException:
        close_all(sources.values())
        raise
    return sources


def open_some(
    program: TypedProgram,
    given: Mapping[str, Any],
    folder: Path,
    defaults: Iterable[InputDef],
    reading: Callable[[], AbstractContextManager[None]],
) -> dict[str, Source]:
    """Open the given inputs, and the ``defaults`` from files or numbers. ``reading``: see ``open_inputs``."""
    check_names("input", given, (tensor.name for tensor in program.inputs))
    ready = {name: value for name, value in given.items() if isinstance(value, Source)}
    plain = {n: v.spec if isinstance(v, File) else v for n, v in given.items() if n not in ready}
    names = {*plain, *(tensor.name for tensor in defaults)} - {*ready}
    statements = tuple(s for s in program.statements if not isinstance(s, InputDef) or s.name in names)
    return open_inputs(replace(program, statements=statements), plain, folder, False, reading) | ready


def open_input(tensor: InputDef, spec: Any, program: TypedProgram, folder: Path, lenient: bool) -> Source | None:
    """Open the source of one input; None if there is nothing to open. See ``open_inputs``."""
    if isinstance(spec, FileRef):
        if lenient and not is_url(spec.path) and not os.path.exists(os.path.join(folder, spec.path)):
            return None
        spec = file_spec(spec, folder)
    elif isinstance(spec, os.PathLike):
        spec = os.fspath(spec)
    elif isinstance(spec, np.generic) and not tensor.rank:
        spec = spec.item()
    if isinstance(spec, bool | int | float | complex):
        if tensor.state and tensor.rank and spec is tensor.default:
            return None  # the number fills all elements, whose count is still unknown
        spec = _number(tensor, spec)
    if spec is None:
        return None
    source = expanded_to(open_given(spec, tensor.name), tensor.dtype)
    if source.dtype != tensor.dtype:
        source.close()
        finding = _dtype_finding(tensor, source, program)
        raise BindError(finding.render(), (finding,))
    return source


def open_given(spec: Any, name: str) -> Source:
    """Open the source of an input; an unusable file is a usage error."""
    try:
        return open_source(spec, name)
    except StoreError as error:
        error.exit_code = BindError.exit_code  # nothing was computed
        raise


def _number(tensor: InputDef, value: complex) -> Array:
    """Convert a number to the scalar that an input declares."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(value, tensor.dtype.numpy)
        # A float may be rounded, other types not; and nothing may become infinite.
        rounds = isinstance(value, float | complex) and tensor.dtype.is_inexact
        exact = bool(np.isinf(array) == np.isinf(value)) if rounds else bool(array == value)
    except (OverflowError, TypeError, ValueError):
        exact = False
    if not exact:
        raise BindError(f"input {tensor.name} is {tensor.dtype}, which cannot hold the number {value}")
    return array


def _dtype_finding(tensor: InputDef, source: Source, program: TypedProgram) -> Diagnostic:
    real = source.dtype.kind == "c" and tensor.dtype.kind != "c"  # complex numbers are not cast to real ones
    convert = f"{tensor.dtype}({'real(x)' if real else 'x'})"
    finding = Diagnostic(
        "E208",
        f"input '{tensor.name}' has another dtype than declared",
        tensor.span,
        expected=str(tensor.dtype),
        found=f"{source.dtype}{f' in {source.name}' if source.name != tensor.name else ''}",
        help=f"declare it as {source.dtype} (and convert in the program: {convert}), or convert the data",
    )
    return with_source(finding, program.source)


def close_all(sources: Iterable[Source]) -> None:
    """Close sources."""
    for source in sources:
        source.close()
