"""Checks the invariants of a TypedProgram."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from einturnip.core.errors import EinturnipError, InternalError
from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, I64
from einturnip.ir.scalar import ARITHMETIC, COMPARISONS, LOGICAL
from einturnip.lang.expressions import (
    AccessExpr,
    AggregateExpr,
    ApplyExpr,
    AxisSize,
    Expr,
    GatherIndex,
    GuardedAccess,
    LabelNumber,
    SizeExpr,
    SizeNumber,
    SizeOp,
    index_labels,
    index_sizes,
    walk,
)
from einturnip.lang.printer import show, show_statement
from einturnip.lang.program import (
    CONDITION,
    Concatenate,
    DimDef,
    Equation,
    GradStatement,
    InputDef,
    Loop,
    Output,
    Replace,
    Statement,
    Tensor,
    TypedProgram,
    is_condition,
)


def check(program: TypedProgram) -> None:
    """Prove that the program is well formed and, without hidden names, prints back to the same program.

    Raises:
        InternalError: it does not.
    """
    for number, tensor in enumerate(program.tensors):
        _require(tensor.number == number, f"tensor {tensor.name} is number {number}, not {tensor.number}")
    _check_block(program, program.statements, set())
    loops = any(_axes_of(end) for loop in _loops(program.statements) for end in (loop.start, loop.stop))
    if not loops and not any(map(_is_hidden, program.tensors)) and not _reads_older(program, program.statements, {}):
        _check_text(program)


def _check_block(program: TypedProgram, statements: Iterable[Statement], known: set[int]) -> None:
    """Prove that each statement reads only tensors that are ``known`` at its place."""
    for statement in statements:
        match statement:
            case DimDef():
                pass
            case Output(name=name, tensor=tensor):
                _require(tensor in known, f"output {name} of a tensor that is not there")
            case InputDef(number=number):
                known.add(number)
            case Equation(number=number):
                _check_equation(program, statement, known)
                known.add(number)
            case Replace() | Concatenate():
                _check_pieces(program, statement, known)
                known.add(statement.number)
            case GradStatement():
                _check_gradient(program, statement, known)
                known.add(statement.number)
            case Loop():
                _check_loop(program, statement, known)
            case _:
                assert_never(statement)


def _check_equation(program: TypedProgram, equation: Equation, known: set[int]) -> None:
    bound = set(range(equation.n_out))
    for root in (equation.value, *(key for _, key in equation.keys)):
        for expr in walk(root):
            if isinstance(expr, AggregateExpr):
                bound |= set(expr.labels)
            _check_expr(program, equation, expr, known)
    _require(bound == set(range(len(equation.labels))), f"a label of {equation.name} is bound nowhere")
    dims = (label.dim for label in equation.labels if label.dim is not None and not isinstance(label.dim, str))
    for size in (*dims, *_sizes_of(equation)):
        _require(all(leaf.tensor in known for leaf in _axes_of(size)), f"{equation.name} has a later tensor's size")
    for label_number, key in equation.keys:
        _require(isinstance(equation.value, AggregateExpr), f"{equation.name} has a key and no aggregation")
        _require(label_number < equation.n_out and key.dtype == I64, f"{equation.name} has a key that is none")
    for hint in equation.hints:
        _require(all(k < len(equation.labels) for k, _, _ in hint.tiles), f"a hint of {equation.name} on no label")


def _check_pieces(program: TypedProgram, statement: Replace | Concatenate, known: set[int]) -> None:
    name, tensors = statement.name, program.tensors
    whole = (statement.base,) if isinstance(statement, Replace) else statement.parts
    parts = (*whole, statement.piece) if isinstance(statement, Replace) else whole
    _require(all(part in known for part in parts), f"{name} has a part that is not there")
    _require({tensors[part].dtype for part in parts} == {statement.dtype}, f"the parts of {name} have other dtypes")
    _require(all(tensors[part].rank == statement.rank for part in whole), f"the parts of {name} have other ranks")
    if isinstance(statement, Replace):
        free = sum(size is None for size in statement.at)
        _require(tensors[statement.piece].rank == free < statement.rank, f"the piece of {name} has another rank")
    else:
        _require(0 <= statement.axis < statement.rank, f"{name} is joined along no axis")


def _check_gradient(program: TypedProgram, statement: GradStatement, known: set[int]) -> None:
    name, loss, by = statement.name, statement.loss, statement.by
    _require(loss in known and by in known, f"{name} is of a tensor that is not there")
    tensor = program.tensors[by]
    _require((tensor.rank, tensor.dtype) == (statement.rank, statement.dtype), f"{name} is not like {tensor.name}")
    _require(tensor.dtype.is_inexact and program.tensors[loss].dtype.is_float, f"{name} of a whole number")


def _check_loop(program: TypedProgram, loop: Loop, known: set[int]) -> None:
    tensors = program.tensors
    inside = known | {carried.number for carried in loop.carried}
    _check_block(program, loop.body, inside)
    if loop.condition is not None:
        condition = tensors[loop.condition]
        _require(condition in loop.carried, "a condition is not carried")
        _require((condition.dtype, condition.rank) == (BOOL, 0), "a condition is no scalar of bool")
    for carried in loop.carried:
        _require(carried.initial in known, f"{carried.name} begins as nothing")
        _require(carried.last in inside, f"{carried.name} ends an iteration as nothing")
        for end in (tensors[carried.initial], tensors[carried.last]):
            _require((end.dtype, end.rank) == (carried.dtype, carried.rank), f"{carried.name} changes in its loop")
        known.add(carried.number)


def _axes_of(size: SizeExpr) -> tuple[AxisSize, ...]:
    match size:
        case AxisSize():
            return (size,)
        case SizeOp(arguments=arguments):
            return tuple(leaf for argument in arguments for leaf in _axes_of(argument))
        case _:
            return ()


def _check_expr(program: TypedProgram, equation: Equation, expr: Expr, known: set[int]) -> None:
    what = f"in {equation.name}: {type(expr).__name__}"
    match expr:
        case AccessExpr(tensor=tensor, indices=indices, dtype=dtype):
            _require(tensor in known, f"{what} of a tensor that is not there")
            _require(len(indices) == program.tensors[tensor].rank, f"{what} of another rank")
            fills = [index.fill for index in indices if isinstance(index, GuardedAccess)]
            _require(bool(fills) or dtype == program.tensors[tensor].dtype, f"{what} of another dtype")
            _require(all(fill.dtype == dtype for fill in fills), f"{what} with a fill of another dtype")
            labels = [label for index in indices for label in index_labels(index)]
            _require(all(0 <= label < len(equation.labels) for label in labels), f"{what} by no label")
            data = (index.index if isinstance(index, GuardedAccess) else index for index in indices)
            _require(all(not isinstance(i, GatherIndex) or i.value.dtype == I64 for i in data), f"{what} by no integer")
        case LabelNumber(label=label):
            _require(0 <= label < len(equation.labels), f"{what} of no label")
        case ApplyExpr(op=op, arguments=arguments, dtype=dtype):
            dtypes = [argument.dtype for argument in arguments]
            if op in COMPARISONS or op in LOGICAL:
                _require(dtype == BOOL and len(set(dtypes)) == 1, f"{what} {op} of {dtypes}")
            elif op == "where":
                _require(dtypes[0] == BOOL and dtypes[1] == dtypes[2] == dtype, f"{what} where of {dtypes}")
            elif op in ARITHMETIC:
                _require(set(dtypes) == {dtype}, f"{what} {op} of {dtypes}")
        case AggregateExpr(op=op, body=body, accumulator=accumulator, dtype=dtype):
            _require(aggregation(op, body.dtype, accumulator).result == dtype, f"{what} {op} gives {dtype}")
        case _:
            pass


def _loops(statements: Iterable[Statement]) -> Iterator[Loop]:
    for statement in statements:
        if isinstance(statement, Loop):
            yield statement
            yield from _loops(statement.body)


def _is_hidden(tensor: Tensor) -> bool:
    """True if a tensor, or a label or size in it, has a name that cannot be written in the language."""
    if is_condition(tensor.name):
        return tensor.name != CONDITION
    if isinstance(tensor, Replace | Concatenate | GradStatement) or "." in tensor.name:
        return True
    if not isinstance(tensor, Equation):
        return False
    keys = {number for number, _ in tensor.keys}
    names = (label.name for number, label in enumerate(tensor.labels) if number not in keys)
    dims = any(not (label.dim is None or isinstance(label.dim, str)) for label in tensor.labels)
    return dims or not all(map(str.isidentifier, names)) or any(_axes_of(size) for size in _sizes_of(tensor))


def _sizes_of(equation: Equation) -> Iterator[SizeExpr]:
    """The sizes that an equation mentions."""
    yield from (label.size for label in equation.labels if label.size is not None)
    yield from (size for hint in equation.hints for _, size, _ in hint.tiles)
    for root in (equation.value, *(key for _, key in equation.keys)):
        for expr in walk(root):
            if isinstance(expr, SizeNumber):
                yield expr.size
            elif isinstance(expr, AccessExpr):
                yield from (size for index in expr.indices for size in index_sizes(index))


def _reads_older(program: TypedProgram, statements: Iterable[Statement], latest: dict[str, int]) -> bool:
    """True if a statement reads a version of a tensor that its name no longer denotes: ``a, b = f(a, b)``."""
    for statement in statements:
        match statement:
            case Loop(carried=carried, body=body):
                numbers = {each.name: each.number for each in carried}
                if _reads_older(program, body, latest | numbers):
                    return True
                latest.update(numbers)
            case Equation():
                roots = (statement.value, *(key for _, key in statement.keys))
                accesses = (expr for root in roots for expr in walk(root) if isinstance(expr, AccessExpr))
                if any(latest[program.tensors[expr.tensor].name] != expr.tensor for expr in accesses):
                    return True
                latest[statement.name] = statement.number
            case InputDef(name=name, number=number):
                latest[name] = number
            case _:
                pass
    return False


def _check_text(program: TypedProgram) -> None:
    from einturnip.lang import compile_text

    text = show(program)
    try:
        again = compile_text(text, program.file)
    except EinturnipError as error:
        raise InternalError(f"the program prints as one that does not compile: {error}") from error
    for before, after in zip(program.statements, again.statements, strict=False):
        _require(before == after, f"a statement changes when it is printed: {show_statement(before, program)}")
    _require(len(program.statements) == len(again.statements), "statements are lost when the program is printed")


def _require(fact: bool, message: str) -> None:
    if not fact:
        raise InternalError(message)
