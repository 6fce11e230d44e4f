"""Drawn terms print as text that Python's own parser, where it can, reads back as the same term."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from einturnip.testing.labels import is_product
from einturnip.testing.printing import program_text, text
from einturnip.testing.terms import (
    AccessTerm,
    AggregateTerm,
    BinaryTerm,
    BoundTerm,
    ComparisonTerm,
    DrawnProgram,
    DrawnStatement,
    NumberTerm,
    ParenTerm,
    SizeTerm,
    Term,
    UnaryTerm,
)

A, B, C = AccessTerm("A", ("i",)), AccessTerm("B", ("i",)), AccessTerm("C", ("j",))
X = AccessTerm("X", ("i", "j"))


def sum_j(body: Term) -> AggregateTerm:
    return AggregateTerm("sum", (BoundTerm("j"),), body)


LEAVES = st.sampled_from((SizeTerm("a"), SizeTerm("b"), NumberTerm(2)))
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
        st.builds(UnaryTerm, st.sampled_from(list(SIGNS.values())), inner),
        st.builds(BinaryTerm, st.sampled_from(list(OPERATORS.values())), inner, inner),
        st.lists(inner, min_size=2, max_size=3).flatmap(
            lambda xs: st.tuples(*(st.sampled_from(list(COMPARISONS.values())) for _ in xs[1:])).map(
                lambda ops: ComparisonTerm(ops, tuple(xs))
            )
        ),
        st.builds(ParenTerm, inner),
    ),
    max_leaves=12,
)


def from_python(node: ast.expr) -> Term:
    """A Python expression as a term."""
    match node:
        case ast.Constant(value=value):
            return NumberTerm(value)
        case ast.Name(id=name):
            return SizeTerm(name)
        case ast.UnaryOp(op=op, operand=operand):
            return UnaryTerm(SIGNS[type(op)], from_python(operand))
        case ast.BinOp(op=op, left=left, right=right):
            return BinaryTerm(OPERATORS[type(op)], from_python(left), from_python(right))
        case ast.BoolOp(op=op, values=[first, *rest]):
            term = from_python(first)
            for value in rest:
                term = BinaryTerm(OPERATORS[type(op)], term, from_python(value))
            return term
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return ComparisonTerm(
                tuple(COMPARISONS[type(op)] for op in ops), tuple(map(from_python, (left, *comparators)))
            )
        case _:
            raise AssertionError(ast.dump(node))


def bare(term: Term) -> Term:
    """The term without Paren, and with ``and`` and ``or`` leaning left, as they associate."""
    match term:
        case ParenTerm(inner=inner):
            return bare(inner)
        case UnaryTerm(op=op, argument=argument):
            return UnaryTerm(op, bare(argument))
        case BinaryTerm(op=op, left=left, right=right):
            left, right = bare(left), bare(right)
            if op in ("and", "or") and isinstance(right, BinaryTerm) and right.op == op:
                return bare(BinaryTerm(op, BinaryTerm(op, left, right.left), right.right))
            return BinaryTerm(op, left, right)
        case ComparisonTerm(ops=ops, arguments=arguments):
            return ComparisonTerm(ops, tuple(map(bare, arguments)))
        case _:
            return term


@given(TERMS)
def test_text_holds_together_as_python_does(term: Term) -> None:
    python = ast.parse(text(term).replace("^", "**"), mode="eval").body
    assert bare(from_python(python)) == bare(term)


def test_aggregations_take_the_product_that_follows() -> None:
    assert text(sum_j(BinaryTerm("*", X, C))) == "sum[j] X[i, j] * C[j]"
    assert text(BinaryTerm("*", sum_j(X), A)) == "(sum[j] X[i, j]) * A[i]"
    assert text(BinaryTerm("*", A, sum_j(X))) == "A[i] * sum[j] X[i, j]"
    assert text(BinaryTerm("*", BinaryTerm("/", A, sum_j(X)), B)) == "(A[i] / sum[j] X[i, j]) * B[i]"
    assert text(BinaryTerm("*", UnaryTerm("-", sum_j(X)), A)) == "(-sum[j] X[i, j]) * A[i]"
    assert text(BinaryTerm("+", sum_j(X), A)) == "sum[j] X[i, j] + A[i]"
    assert text(sum_j(BinaryTerm("+", X, C))) == "sum[j] (X[i, j] + C[j])"
    assert text(ComparisonTerm(("<",), (sum_j(X), A))) == "sum[j] X[i, j] < A[i]"
    assert text(AggregateTerm("any", (BoundTerm("j"),), ComparisonTerm(("<",), (X, A)))) == "any[j] (X[i, j] < A[i])"
    assert text(BinaryTerm("^", sum_j(X), NumberTerm(2))) == "(sum[j] X[i, j]) ^ 2"
    assert text(BinaryTerm("^", NumberTerm(2), sum_j(X))) == "2 ^ (sum[j] X[i, j])"


def test_a_program_prints_a_statement_a_line() -> None:
    bounds = (BoundTerm("i"), BoundTerm("j", NumberTerm(3)))
    program = DrawnProgram(
        (), (), (DrawnStatement("Z", bounds, NumberTerm(0.5)), DrawnStatement("s", (), NumberTerm(True))), ("Z", "s")
    )
    assert program_text(program) == "Z[i, j: 3] = 0.5\ns = true\noutput Z, s\n"


def test_what_einsteins_convention_calls_one_product() -> None:
    assert is_product(BinaryTerm("*", NumberTerm(2), BinaryTerm("*", A, C)))
    assert is_product(BinaryTerm("/", A, SizeTerm("n")))
    assert not is_product(BinaryTerm("/", A, B))
    assert not is_product(BinaryTerm("+", A, B))
    assert not is_product(BinaryTerm("^", A, NumberTerm(2)))
    assert is_product(UnaryTerm("-", A))
