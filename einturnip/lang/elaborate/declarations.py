"""Elaborates declarations of sizes, inputs and outputs."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from einturnip.core.errors import SourceError
from einturnip.ir.dtypes import DTYPES
from einturnip.lang import syntax_tree as s
from einturnip.lang.elaborate.scope import KnownNames, NameScope
from einturnip.lang.elaborate.syntax_analysis import MAX_DEPTH, too_deep
from einturnip.lang.elaborate.typing import TypeProblem, fits, literal, negate
from einturnip.lang.expressions import NumberExpr, SizeExpr
from einturnip.lang.keywords import CONSTANTS
from einturnip.lang.program import DimDef, FileRef, InputDef, Output
from einturnip.lang.sizes import size_names, size_text, size_value

# -- sizes -------------------------------------------------------------------------------------------------------------


def declare_dim(scope: NameScope, declaration: s.DimDeclaration) -> None:
    """Declare ``dim name = value``."""
    name, span = declaration.name, declaration.name_span
    if not scope.usable(name, span):
        return
    tensor = scope.tensors.get(name)
    if tensor is not None and tensor.rank == 0:
        scope.conflict("E023", f"'{name}' is a scalar already", span, tensor.span, "defined here")
        return
    before = scope.dims.get(name)
    definition = None
    if declaration.value is not None:
        if too_deep(declaration.value):
            scope.error("E008", f"this nests deeper than {MAX_DEPTH}", declaration.value.span)
        else:
            definition = scope.size(declaration.value)
        if definition is None:
            scope.broken_dims.add(name)
            return
    if before is not None and before.definition is not None and definition is not None:
        message = f"size '{name}' is defined twice"
        scope.conflict("E023", message, span, before.span, "defined here first", "give the second another name")
        return
    if before is None or definition is not None:
        dim = DimDef(name, definition, False, span)
        scope.dims[name] = dim
        scope.draft.emit(dim)


def check_dims(scope: NameScope) -> None:
    """Report circular definitions of sizes, and errors in sizes whose value is known."""
    definitions = {name: dim.definition for name, dim in scope.dims.items() if dim.definition is not None}
    graph = {name: size_names(definition) for name, definition in definitions.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as problem:
        cycle = problem.args[1]
        message = f"size '{cycle[0]}' is defined through itself: {' -> '.join(reversed(cycle))}"
        scope.error("E027", message, scope.dims[cycle[0]].span)
        return
    values: dict[str, int] = {}
    for name in order:
        if name in definitions:
            value = _constant(scope, name, definitions[name], values)
            if value is not None:
                values[name] = value


def _constant(scope: NameScope, name: str, definition: SizeExpr, values: dict[str, int]) -> int | None:
    try:
        value = size_value(definition, values)
    except KeyError:
        return None
    except SourceError as problem:
        scope.problems.extend(problem.diagnostics)
        return None
    if value < 0:
        found = "" if size_text(definition) == str(value) else f"{name} = {size_text(definition)} = {value}"
        scope.error("E051", f"size '{name}' is negative", definition.span, found=found)
        return None
    return value


# -- inputs and outputs ------------------------------------------------------------------------------------------------


def declare_input(scope: NameScope, declaration: s.InputDeclaration) -> None:
    """Declare ``input name : dtype[shape] = default``."""
    name, span = declaration.name, declaration.name_span
    implied: list[DimDef] = []
    dtype = DTYPES.get(declaration.dtype)
    if dtype is None:
        scope.unknown_dtype(declaration.dtype, declaration.dtype_span)
    shape = []
    for axis in declaration.shape:
        if too_deep(axis):
            scope.error("E008", f"this nests deeper than {MAX_DEPTH}", axis.span)
        elif (size := scope.size(axis, implied)) is not None:
            shape.append(size)
    for dim in implied:
        scope.draft.emit(dim)
    if not scope.usable(name, span) or not _unused(scope, declaration):
        return
    scope.tensors[name] = None
    if dtype is None or len(shape) < len(declaration.shape):
        return
    default: FileRef | bool | int | float | complex | None = None
    match declaration.default:
        case None:
            pass
        case s.FileLiteral(path=path, key=key):
            default = FileRef(path, key)
        case node:
            value = _number(scope, node)
            if value is None:
                return
            if shape and not declaration.state:
                help_text = f'a tensor comes from a file, = "{name}.npy", or is filled by an equation'
                scope.error("E053", "only a scalar input may have a number as its default", node.span, help_text)
                return
            kinds = {bool: "b", int: "u", float: "f", complex: "c"}
            if "buifc".index(kinds[type(value)]) > "buifc".index(dtype.kind.replace("i", "u")) or (
                dtype.is_integer and not fits(value, dtype)
            ):
                scope.error("E042", f"{value} does not fit {dtype}", node.span, expected=str(dtype), found=str(value))
                return
            default = value
    tensor = InputDef(name, scope.draft.number, dtype, tuple(shape), default, declaration.span, declaration.state)
    scope.tensors[name] = KnownNames(tensor, len(shape))
    scope.draft.emit(tensor)


def _unused(scope: NameScope, declaration: s.InputDeclaration) -> bool:
    name, span = declaration.name, declaration.name_span
    if name in scope.tensors:
        before = scope.tensors[name]
        if before is not None:
            what = "state" if declaration.state else "input"
            message = f"'{name}' is defined already"
            scope.conflict("E023", message, span, before.span, "defined here first", f"give the {what} another name")
        return False
    if name in scope.dims and not declaration.shape:
        scope.conflict("E023", f"'{name}' is a size already", span, scope.dims[name].span, "declared here")
        return False
    return True


def _number(scope: NameScope, node: s.Node) -> bool | int | float | complex | None:
    """A signed number as a default value; None if it is none."""
    try:
        match node:
            case s.LiteralNode(value=value):
                return value
            case s.NameNode(name=name) if name in CONSTANTS:
                return CONSTANTS[name]
            case s.UnaryNode(op="-" | "+" as op, argument=argument):
                inner = _number(scope, argument)
                if inner is None or op == "+" or isinstance(inner, bool):
                    return inner
                negated = negate(literal(inner, node.span), node.span)
                return negated.value if isinstance(negated, NumberExpr) else None
            case _:
                scope.error("E053", "a default is a number or a file name in quotes", node.span)
    except TypeProblem as problem:
        scope.problems.append(problem.diagnostic)
    return None


def declare_output(scope: NameScope, declaration: s.OutputDeclaration) -> None:
    """Declare ``output name = file``."""
    name, span = declaration.name, declaration.span
    twice = scope.draft.outputs.get(name)
    if twice is not None:
        help_text = "once is enough"
        scope.conflict("E025", f"'{name}' is an output already", span, twice.span, "here", help_text)
    elif name in scope.tensors:
        tensor = scope.tensors[name]
        if tensor is not None:
            file = declaration.file
            ref = FileRef(file.path, file.key) if file else None
            scope.draft.emit(Output(name, tensor.number, ref, span))
    elif name in scope.dims or name in scope.broken_dims:
        scope.error("E024", f"'{name}' is a size, not a tensor", span, f"compute a scalar: {name}_ = {name}")
    else:
        scope.unknown("output", name, span, scope.tensors, code="E024")
