"""Drawn terms print as text that Python's own parser, where it can, reads back as the same term."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from einturnip.testing.labels import is_product
from einturnip.testing.printing import program_text, text
from einturnip.testing.terms import (
    Access,
    Aggregate,
    Binary,
    Bound,
    Chain,
    Number,
    Paren,
    Program,
    Size,
    Statement,
    Term,
    Unary,
)

A, B, C = Access("A", ("i",)), Access("B", ("i",)), Access("C", ("j",))
X = Access("X", ("i", "j"))


def sum_j(body: Term) -> Aggregate:
    return Aggregate("sum", (Bound("j"),), body)


LEAVES = st.sampled_from((Size("a"), Size("b"), Number(2)))
SIGNS = {ast.USub: "-", ast.Not: "not"}
OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "^",
    ast.And: "and",
    ast.Or: "or",
}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">="}
TERMS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Unary, st.sampled_from(list(SIGNS.values())), inner),
        st.builds(Binary, st.sampled_from(list(OPERATORS.values())), inner, inner),
        st.lists(inner, min_size=2, max_size=3).flatmap(
            lambda xs: st.tuples(*(st.sampled_from(list(COMPARISONS.values())) for _ in xs[1:])).map(
                lambda ops: Chain(ops, tuple(xs))
            )
        ),
        st.builds(Paren, inner),
    ),
    max_leaves=12,
)


def from_python(node: ast.expr) -> Term:
    """A Python expression as a term."""
    match node:
        case ast.Constant(value=value):
            return Number(value)
        case ast.Name(id=name):
            return Size(name)
        case ast.UnaryOp(op=op, operand=operand):
            return Unary(SIGNS[type(op)], from_python(operand))
        case ast.BinOp(op=op, left=left, right=right):
            return Binary(OPERATORS[type(op)], from_python(left), from_python(right))
        case ast.BoolOp(op=op, values=[first, *rest]):
            term = from_python(first)
            for value in rest:
                term = Binary(OPERATORS[type(op)], term, from_python(value))
            return term
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return Chain(tuple(COMPARISONS[type(op)] for op in ops), tuple(map(from_python, (left, *comparators))))
        case _:
            raise AssertionError(ast.dump(node))


def bare(term: Term) -> Term:
    """The term without Paren, and with ``and`` and ``or`` leaning left, as they associate."""
    match term:
        case Paren(inner=inner):
            return bare(inner)
        case Unary(op=op, argument=argument):
            return Unary(op, bare(argument))
        case Binary(op=op, left=left, right=right):
            left, right = bare(left), bare(right)
            if op in ("and", "or") and isinstance(right, Binary) and right.op == op:
                return bare(Binary(op, Binary(op, left, right.left), right.right))
            return Binary(op, left, right)
        case Chain(ops=ops, arguments=arguments):
            return Chain(ops, tuple(map(bare, arguments)))
        case _:
            return term


@given(TERMS)
def test_text_holds_together_as_python_does(term: Term) -> None:
    python = ast.parse(text(term).replace("^", "**"), mode="eval").body
    assert bare(from_python(python)) == bare(term)


def test_aggregations_take_the_product_that_follows() -> None:
    assert text(sum_j(Binary("*", X, C))) == "sum[j] X[i, j] * C[j]"
    assert text(Binary("*", sum_j(X), A)) == "(sum[j] X[i, j]) * A[i]"
    assert text(Binary("*", A, sum_j(X))) == "A[i] * sum[j] X[i, j]"
    assert text(Binary("*", Binary("/", A, sum_j(X)), B)) == "(A[i] / sum[j] X[i, j]) * B[i]"
    assert text(Binary("*", Unary("-", sum_j(X)), A)) == "(-sum[j] X[i, j]) * A[i]"
    assert text(Binary("+", sum_j(X), A)) == "sum[j] X[i, j] + A[i]"
    assert text(sum_j(Binary("+", X, C))) == "sum[j] (X[i, j] + C[j])"
    assert text(Chain(("<",), (sum_j(X), A))) == "sum[j] X[i, j] < A[i]"
    assert text(Aggregate("any", (Bound("j"),), Chain(("<",), (X, A)))) == "any[j] (X[i, j] < A[i])"
    assert text(Binary("^", sum_j(X), Number(2))) == "(sum[j] X[i, j]) ^ 2"
    assert text(Binary("^", Number(2), sum_j(X))) == "2 ^ (sum[j] X[i, j])"


def test_a_program_prints_a_statement_a_line() -> None:
    bounds = (Bound("i"), Bound("j", Number(3)))
    program = Program((), (), (Statement("Z", bounds, Number(0.5)), Statement("s", (), Number(True))), ("Z", "s"))
    assert program_text(program) == "Z[i, j: 3] = 0.5\ns = true\noutput Z, s\n"


def test_what_einsteins_convention_calls_one_product() -> None:
    assert is_product(Binary("*", Number(2), Binary("*", A, C)))
    assert is_product(Binary("/", A, Size("n")))
    assert not is_product(Binary("/", A, B))
    assert not is_product(Binary("+", A, B))
    assert not is_product(Binary("^", A, Number(2)))
    assert is_product(Unary("-", A))
