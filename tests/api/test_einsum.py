"""einsum and contract compared with NumPy's and opt_einsum's: drawn contractions, many operands."""

import string
from functools import reduce

import numpy as np
import opt_einsum
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import einturnip as et
from tests.drawn import examples

DTYPES = ("float64", "float32", "int64", "int8", "complex64", "bool")


@st.composite
def contractions(draw):
    """Subscripts and operands: letters, repeats, ellipses that broadcast, axes of size 1, a result or none."""
    letters = draw(st.lists(st.sampled_from(string.ascii_letters), min_size=1, max_size=5, unique=True))
    sizes = {letter: draw(st.integers(0, 4)) for letter in letters}
    rest = draw(st.lists(st.integers(1, 3), max_size=2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    terms, operands, rests = [], [], []
    for _ in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(st.sampled_from(letters), max_size=3))
        shape = [sizes[letter] if labels.count(letter) > 1 or draw(st.booleans()) else 1 for letter in labels]
        term, mine = "".join(labels), []
        if draw(st.booleans()):
            at = draw(st.integers(0, len(labels)))
            mine = [n if draw(st.booleans()) else 1 for n in rest[draw(st.integers(0, len(rest))) :]]
            term, shape[at:at] = term[:at] + "..." + term[at:], mine
        terms.append(term)
        rests.append(len(mine))
        dtype = draw(st.sampled_from(DTYPES))
        operands.append(rng.integers(-2, 3, shape).astype(dtype))
    text = ",".join(terms)
    if draw(st.booleans()):
        used = sorted(set(text) & set(letters))
        chosen = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
        dots = ["..."] if any(rests) or draw(st.booleans()) else []
        text += "->" + "".join(draw(st.permutations([*chosen, *dots])))
    return text, operands


@settings(max_examples=examples(150))
@given(contractions())
def test_a_drawn_contraction_is_numpys(drawn):
    subscripts, operands = drawn
    note([operand.shape for operand in operands])
    expected = np.einsum(subscripts, *operands)
    found = et.einsum(subscripts, *operands, arena="1MiB", workers=1)
    assert found.dtype == expected.dtype and np.shape(found) == expected.shape
    assert (found == expected).all()


def digits(*shape):
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(float)


A, B = digits(5, 6), digits(6, 7)


@pytest.mark.parametrize(
    "arguments",
    [
        ("batch seq, seq dim -> batch dim", A, B),
        ("αβ,βγ->αγ", A, B),
        (A, [0, 1], B, [1, 2], [0, 2]),
        (A, [1000, 7], B, [7, 2000]),
        (A, ["in", "k"], B, ["k", "dim"], ["in", "dim"]),
        (A, [..., 5], B, [5, 6], [..., 6]),
    ],
)
def test_every_form_of_subscripts(arguments):
    for function in (et.einsum, et.contract):
        assert (function(*arguments, arena="1MiB") == A @ B).all()


def test_optimize_is_taken_as_numpys_and_opt_einsums_calls_give_it():
    for optimize in (False, "optimal", ["einsum_path", (0, 1)]):
        assert (et.einsum("ij,jk", A, B, optimize=optimize, arena="1MiB") == A @ B).all()


def ladder(n):
    """The inner product of two matrix product states of n sites: 2 n operands, 3 n + 2 labels."""
    rng = np.random.default_rng(0)
    arguments = []
    for begin in (0, n + 1):
        for site in range(n):
            tensor = rng.uniform(-1, 1, (3, 2, 3))
            arguments += [tensor, [begin + site, 2 * n + 2 + site, begin + site + 1]]
    return [*arguments, [0, n, n + 1, 2 * n + 1]]


def test_hundreds_of_operands_and_labels():
    """An order that opt_einsum finds: any other would make tensors of 2^150 elements, or none at all."""
    arguments = ladder(150)
    assert len(arguments) == 601 and len({label for labels in arguments[1::2] for label in labels}) == 452
    found = et.einsum(*arguments, arena="1MiB")
    expected = opt_einsum.contract(*arguments)
    assert found.shape == (3, 3, 3, 3)
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-12 * abs(expected).max())


def test_a_chain_written_in_opt_einsums_symbols():
    symbols = [opt_einsum.get_symbol(k) for k in range(501)]
    rng = np.random.default_rng(1)
    factors = [rng.permutation(np.eye(2)) for _ in range(500)]
    text = ",".join(map("".join, zip(symbols, symbols[1:], strict=False))) + f"->{symbols[0]}{symbols[-1]}"
    assert (et.contract(text, *factors, arena="1MiB") == reduce(np.matmul, factors)).all()
