"""What holds of every Program."""

from __future__ import annotations

from einturnip.core.algebra import aggregation
from einturnip.core.dtypes import BOOL
from einturnip.core.errors import EinturnipError, InternalError
from einturnip.core.scalar import ARITHMETIC, COMPARISONS, LOGICAL
from einturnip.lang.show import show, show_statement
from einturnip.lang.types import Access, Aggregate, Apply, Equation, Expr, LabelNumber, Program, walk


def check(program: Program) -> None:
    """Prove that the program is well formed and prints back to the same program.

    Raises:
        InternalError: it does not.
    """
    for number, tensor in enumerate(program.tensors):
        _require(tensor.number == number, f"tensor {tensor.name} is number {number}, not {tensor.number}")
        if isinstance(tensor, Equation):
            bound = set(range(tensor.n_out))
            for expr in walk(tensor.value):
                if isinstance(expr, Aggregate):
                    bound |= set(expr.labels)
                _check_expr(program, tensor, expr)
            _require(bound == set(range(len(tensor.labels))), f"a label of {tensor.name} is bound nowhere")
    _check_text(program)


def _check_expr(program: Program, equation: Equation, expr: Expr) -> None:
    what = f"in {equation.name}: {type(expr).__name__}"
    match expr:
        case Access(tensor=tensor, indices=labels, dtype=dtype):
            _require(tensor < equation.number, f"{what} of a later tensor")
            _require(len(labels) == program.tensors[tensor].rank, f"{what} of another rank")
            _require(dtype == program.tensors[tensor].dtype, f"{what} of another dtype")
            _require(all(0 <= label < len(equation.labels) for label in labels), f"{what} by no label")
        case LabelNumber(label=label):
            _require(0 <= label < len(equation.labels), f"{what} of no label")
        case Apply(op=op, arguments=arguments, dtype=dtype):
            dtypes = [argument.dtype for argument in arguments]
            if op in COMPARISONS or op in LOGICAL:
                _require(dtype == BOOL and len(set(dtypes)) == 1, f"{what} {op} of {dtypes}")
            elif op == "where":
                _require(dtypes[0] == BOOL and dtypes[1] == dtypes[2] == dtype, f"{what} where of {dtypes}")
            elif op in ARITHMETIC:
                _require(set(dtypes) == {dtype}, f"{what} {op} of {dtypes}")
        case Aggregate(op=op, body=body, accumulator=accumulator, dtype=dtype):
            _require(aggregation(op, body.dtype, accumulator).result == dtype, f"{what} {op} gives {dtype}")
        case _:
            pass


def _check_text(program: Program) -> None:
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
