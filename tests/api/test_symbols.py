"""Labels of subscripts: any character that opt_einsum takes, and messages that stay short."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import einturnip as et
from einturnip.core.errors import BindError

A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
SYMBOLS = st.characters(exclude_characters=",->.", exclude_categories=["Cs"]).filter(lambda c: not c.isspace())


@given(st.lists(SYMBOLS, min_size=3, max_size=3, unique=True))
def test_any_symbol_of_opt_einsum_is_a_label(symbols: list[str]) -> None:
    i, j, k = symbols
    assert np.array_equal(et.einsum(f"{i}{j},{j}{k}->{i}{k}", A, B), A @ B)
    out = np.einsum(A, [0, 1], B, [1, 2], sorted([0, 2], key=lambda n: symbols[n]))
    assert np.array_equal(et.contract(f"{i}{j},{j}{k}", A, B), out)


def test_digits_are_letters_where_the_axes_say_so() -> None:
    assert np.array_equal(et.einsum("i2->i", A), A.sum(1))
    assert np.array_equal(et.einsum("x1 x2, x2 x3 -> x1 x3", A, B), A @ B)
    assert np.array_equal(et.einsum(A, [10, 20], B, [20, 30], [10, 30]), A @ B)


@pytest.mark.parametrize("fault", ["zz", "z.", "i", "->", "missing", "count"])
def test_messages_repeat_no_long_subscripts(fault: str) -> None:
    terms = ["ij"] * 400
    operands = [np.zeros((2, 2))] * 400
    if fault == "i":
        operands[200] = np.zeros((3, 2))
    elif fault in ("zz", "z."):
        terms[200] = fault * 2
    elif fault == "count":
        operands.pop()
    text = ",".join(terms) + {"->": "->i->j", "missing": "->q"}.get(fault, "->i")
    with pytest.raises(BindError) as refused:
        et.einsum(text, *operands)
    assert len(str(refused.value)) < 400
    if fault in ("zz", "z."):
        assert fault in str(refused.value)
