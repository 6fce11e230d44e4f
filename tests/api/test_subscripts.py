"""NumPy's subscripts: what they mean, and what is refused in the caller's words."""

import numpy as np
import pytest

from einturnip.api.subscripts import bind, parse, program_text
from einturnip.core.dtypes import BOOL, F32, F64, I8
from einturnip.core.errors import BindError


def contraction(*arguments):
    subscripts, operands = parse(arguments)
    return bind(subscripts, [np.shape(operand) for operand in operands])


A, B = np.zeros((2, 3)), np.zeros((3, 4))


@pytest.mark.parametrize(
    ("arguments", "terms", "output"),
    [
        (("ij,jk->ik", A, B), ("ij", "jk"), "ik"),
        (("ij,jk", A, B), ("ij", "jk"), "ik"),
        ((" ij , jk -> ki", A, B), ("ij", "jk"), "ki"),
        (("ji", A), ("ji",), "ij"),
        (("ii", np.zeros((3, 3))), ("ii",), ""),
        (("ij->", A), ("ij",), ""),
        ((A, [0, 1], B, [1, 2], [2, 0]), ("AB", "BC"), "CA"),
        ((A, [1, 0]), ("BA",), "AB"),
        (("ij,jk->ik", np.zeros((2, 1)), B), ("i", "jk"), "ik"),
    ],
)
def test_labels_of_operands_and_result(arguments, terms, output):
    found = contraction(*arguments)
    assert tuple("".join(term) for term in found.terms) == terms
    assert "".join(found.output) == output


def test_an_ellipsis_stands_for_the_axes_before_it_aligned_at_the_right():
    found = contraction("...ij,...jk->...ik", np.zeros((5, 7, 2, 3)), np.zeros((7, 3, 4)))
    assert found.terms == (("d0", "d1", "i", "j"), ("d1", "j", "k"))
    assert found.output == ("d0", "d1", "i", "k")


def test_an_axis_of_size_one_broadcasts():
    found = contraction("...,...", np.zeros((3, 1)), np.zeros((1, 4)))
    assert found.terms == (("d0",), ("d1",))
    assert found.dropped == ((1,), (0,))
    assert found.sizes == {"d0": 3, "d1": 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ij,jk->ik", A, A), "label 'j' .* size 3 in operand 0 .* 2 in operand 1"),
        (("ij,jk->ik", A), "names 2 operands, but 1 were given"),
        (("ijk->i", A), "names 3 axes, but operand 0 has 2"),
        (("ij->iz", A), "label 'z' of the result .* in no operand"),
        (("ij->ii", A), "'i' stands twice"),
        (("i2->i", A), "'2' in the subscripts"),
        (("...j->j", A), "lacks the ellipsis"),
        ((A, "ij"), "takes operand, labels"),
        ((A, [0, -1]), "neither a number from 0 nor an ellipsis"),
        ((), "needs subscripts"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(BindError, match=message):
        contraction(*arguments)


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
