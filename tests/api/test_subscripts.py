"""NumPy's subscripts: their meaning, and refusals in the caller's words."""

import numpy as np
import pytest

from einturnip.api.subscripts import bind, parse, program_text
from einturnip.core.errors import BindError
from einturnip.ir.dtypes import BOOL, F32, F64, I8


def contraction(*arguments):
    readings, operands = parse(arguments)
    return bind(readings, [np.shape(operand) for operand in operands])


A, B = np.zeros((2, 3)), np.zeros((3, 4))
FOUR = np.zeros((2, 3, 4, 5))


@pytest.mark.parametrize(
    ("arguments", "terms", "output"),
    [
        (("ij,jk->ik", A, B), ("ij", "jk"), "ik"),
        (("ij,jk", A, B), ("ij", "jk"), "ik"),
        ((" ij , jk -> ki", A, B), ("ij", "jk"), "ki"),
        (("i j, j k -> i k", A, B), ("ij", "jk"), "ik"),
        (("ji", A), ("ji",), "ij"),
        (("ii", np.zeros((3, 3))), ("ii",), ""),
        (("ij->", A), ("ij",), ""),
        (("->", np.zeros(())), ("",), ""),
        (("αβ,βγ->αγ", A, B), ("αβ", "βγ"), "αγ"),
        (("×÷,÷ß", A, B), ("×÷", "÷ß"), "×ß"),
        (("ij->...ij", A), ("ij",), "ij"),
    ],
)
def test_letters(arguments, terms, output):
    found = contraction(*arguments)
    assert tuple("".join(term) for term in found.terms) == terms
    assert "".join(found.output) == output


@pytest.mark.parametrize(
    ("arguments", "terms", "output"),
    [
        (("batch seq, seq dim -> batch dim", A, B), (("batch", "seq"), ("seq", "dim")), ("batch", "dim")),
        (("batch seq, seq dim", A, B), (("batch", "seq"), ("seq", "dim")), ("batch", "dim")),
        (("row, column -> column row", np.zeros(2), np.zeros(3)), (("row",), ("column",)), ("column", "row")),
        (("h1 w_2 -> w_2", A), (("h1", "w_2"),), ("w_2",)),
        (("...seq dim -> dim ...", np.zeros((7, 2, 3))), (("...0", "seq", "dim"),), ("dim", "...0")),
        # Where letters fit the axes too, they are meant, as in NumPy.
        (("ab c -> c", np.zeros((2, 3, 4))), (("a", "b", "c"),), ("c",)),
        (("ab c -> c", A), (("ab", "c"),), ("c",)),
        (("seqd", FOUR), (("s", "e", "q", "d"),), ("d", "e", "q", "s")),
        (("seqd", np.zeros(3)), (("seqd",),), ("seqd",)),
    ],
)
def test_names(arguments, terms, output):
    found = contraction(*arguments)
    assert found.terms == terms
    assert found.output == output


@pytest.mark.parametrize(
    ("arguments", "terms", "output"),
    [
        ((A, [0, 1], B, [1, 2], [2, 0]), ((0, 1), (1, 2)), (2, 0)),
        ((A, [1, 0]), ((1, 0),), (0, 1)),
        ((A, [100, 9]), ((100, 9),), (9, 100)),
        ((A, (0, 1), B, range(1, 3)), ((0, 1), (1, 2)), (0, 2)),
        ((A, np.array([0, 1])), ((0, 1),), (0, 1)),
        ((FOUR, [..., 3], [3, ...]), (("...0", "...1", "...2", 3),), (3, "...0", "...1", "...2")),
        ((A, ["x", 7]), (("x", 7),), (7, "x")),
        ((A, [True, 0]), ((1, 0),), (0, 1)),
    ],
)
def test_lists(arguments, terms, output):
    found = contraction(*arguments)
    assert found.terms == terms
    assert found.output == output


def test_an_ellipsis_stands_for_the_axes_before_it_aligned_at_the_right():
    found = contraction("...ij,...jk->...ik", np.zeros((5, 7, 2, 3)), np.zeros((7, 3, 4)))
    assert found.terms == (("...0", "...1", "i", "j"), ("...1", "j", "k"))
    assert found.output == ("...0", "...1", "i", "k")


def test_an_axis_of_size_one_broadcasts():
    found = contraction("...,...", np.zeros((3, 1)), np.zeros((1, 4)))
    assert found.terms == (("...0", None), (None, "...1"))
    assert found.sizes == {"...0": 3, "...1": 4}
    text = program_text(contraction("ij,jk->ik", np.zeros((2, 1)), B), [F64, F64], F64)
    assert text.splitlines()[0] == "input operand0 : f64[2, 1]"
    assert "sum[j : f64] operand0[i, 0] * operand1[j, k]" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ij,jk->ik", A, A), "label 'j' .* size 3 in operand 0 .* 2 in operand 1"),
        (("ij,jk->ik", A), "names 2 operands, but 1 were given"),
        (("ijk->i", A), "names 3 axes, but operand 0 has 2"),
        (("ij->iz", A), "label 'z' of the result .* in no operand"),
        (("ij->ii", A), "'i' stands twice"),
        (("i-j->i", A), "'-' in the subscripts 'i-j->i' is no label"),
        (("(h w) -> h", A), r"'\(hw\)' in .* names 4 axes, but operand 0 has 2"),
        (("i2->i", FOUR), "'i2' in 'i2->i' names 2 axes, but operand 0 has 4"),
        (("batch seq, seq dim", A, np.zeros(3)), "'seq dim' in 'batch seq, seq dim' names 2 axes, but operand 1 has 1"),
        (("ii", np.zeros((1, 3))), "'i' of 'ii' has size 1 in operand 0 .* 3 in operand 0"),
        (("i->i->i", A), "more than one '->'"),
        (("i->i,i", A), "a comma after '->'"),
        (("i.j->i", A), "'i.j' in 'i.j->i': an ellipsis is three dots"),
        (("...i...->i", A), "an ellipsis is three dots, once in each operand"),
        (("...j->j", A), "lacks the ellipsis"),
        ((A, "ij"), "takes operand, labels"),
        ((A, [0, -1]), "the label -1 is negative. help: labels are numbers from 0, names, or an ellipsis"),
        ((A, [0, 1.5]), "a label is a number from 0, a name, or an ellipsis, not float"),
        ((A, [..., 0, ...]), "more than one ellipsis"),
        ((A, [0, 1], [7]), r"label '7' of the result of '\[0, 1\] -> \[7\]' is in no operand"),
        ((A, [0]), r"'\[0\]' in '\[0\]' names 1 axis, but operand 0 has 2"),
        ((A,), "needs subscripts and at least one operand"),
        ((), "needs subscripts"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(BindError, match=message):
        contraction(*arguments)


@pytest.mark.parametrize("arguments", [(3, A), (A, [0, 1.5]), (A, [0, None]), (A, 3), (A, "ij")], ids=str)
def test_what_is_no_label_is_a_type_error(arguments):
    """As in NumPy."""
    with pytest.raises(TypeError) as refused:
        contraction(*arguments)
    assert isinstance(refused.value, BindError) and len(str(refused.value)) < 200


def test_the_program_casts_and_accumulates_in_the_result_type():
    text = program_text(contraction("ij,jk->ik", A, B), [F32, F64], F64)
    assert text.splitlines() == [
        "input operand0 : f32[2, 3]",
        "input operand1 : f64[3, 4]",
        "result[i, k] = sum[j : f64] f64(operand0[i, j]) * operand1[j, k]",
        "output result",
    ]
    assert "sum[i, j : i8] operand0[i, j]" in program_text(contraction("ij->", A), [I8], I8)
    assert "any[i, j] (operand0[i, j])" in program_text(contraction("ij->", A), [BOOL], BOOL)


def test_labels_of_any_kind_have_names_in_the_program():
    text = program_text(contraction(A, [0, "sum"], B, ["sum", "seq"], [0, "seq"]), [F64, F64], F64)
    assert "result[label0, seq] = sum[label1 : f64] operand0[label0, label1] * operand1[label1, seq]" in text


def test_a_product_of_many_nests_little():
    operands = [part for k in range(1000) for part in (np.zeros((2, 2)), [k, k + 1])]
    text = program_text(contraction(*operands, [0, 1000]), [F64] * 1000, F64)
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    assert deepest <= 8 and text.count("operand999") == 2
