"""Dtypes: NumPy 2's promotion, Python numbers, and values that never widen a float."""

import numpy as np
import pytest

from einturnip.ir.dtypes import DTYPES, from_numpy
from einturnip.lang import compile_text
from einturnip.lang.program import Equation
from tests.reference.program_check import check

NUMBERS = [name for name in DTYPES if name not in ("bool", "bf16")]
INPUTS = "dim n\n" + "".join(f"input {name}_ : {name}[n]\n" for name in DTYPES) + "input s : f64\nscale = 1 / sqrt(n)\n"


def dtype_of(expression: str, before: str = "", left: str = "y[i]") -> str:
    program = compile_text(f"{INPUTS}{before}\n{left} = {expression}\n")
    check(program)
    equation = program.tensors[-1]
    assert isinstance(equation, Equation)
    return equation.dtype.name


@pytest.mark.parametrize("a", NUMBERS)
@pytest.mark.parametrize("b", NUMBERS)
def test_arithmetic_promotes_as_numpy(a: str, b: str) -> None:
    x, y = np.ones(2, DTYPES[a].numpy), np.ones(2, DTYPES[b].numpy)
    assert dtype_of(f"{a}_[i] + {b}_[i]") == from_numpy((x + y).dtype).name
    assert dtype_of(f"{a}_[i] / {b}_[i]") == from_numpy((x / y).dtype).name


@pytest.mark.parametrize("a", NUMBERS)
@pytest.mark.parametrize("number", [2, 0.5, 2j])
def test_literals_are_python_numbers(a: str, number: complex) -> None:
    x = np.ones(2, DTYPES[a].numpy)
    text = f"{number.imag}j" if isinstance(number, complex) else repr(number)
    assert dtype_of(f"{a}_[i] * {text}") == from_numpy((x * number).dtype).name
    assert dtype_of(f"{text} * {a}_[i]") == from_numpy((x * number).dtype).name


@pytest.mark.parametrize("a", [name for name in NUMBERS if DTYPES[name].kind in "iu"])
@pytest.mark.parametrize("function", ["exp", "sqrt", "sin", "abs", "sign", "floor"])
def test_functions_of_integers(a: str, function: str) -> None:
    expected = getattr(np, function)(np.ones(2, DTYPES[a].numpy)).dtype
    assert dtype_of(f"{function}({a}_[i])") == from_numpy(expected).name


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("i32_[i] * 2", "i32"),
        ("i32_[i] * 0.5", "f64"),
        ("f32_[i] * scale", "f32"),
        ("f16_[i] * scale", "f16"),
        ("f32_[i] * f64(scale)", "f64"),
        ("f32_[i] + where(bool_[i], 0, -inf)", "f32"),
        ("f32_[i] * i", "f32"),
        ("f32_[i] * (1 / (i + 1))", "f32"),
        ("i8_[i] * i", "i64"),
        ("i8_[i] * n", "i8"),
        ("i8_[i] + i64(1)", "i64"),
        ("f32_[i] * i64_[i]", "f64"),
        ("f32_[i] * s", "f64"),
        ("f32_[i] * i64(2)", "f64"),
        ("f32_[i] * (i < 3) * 1.0", "f32"),
        ("f32_[i] * (bool_[i] * 1.0)", "f32"),
        ("bool_[i] * 1", "i64"),
        ("bool_[i] + bool_[i]", "bool"),
        ("i32_[i] // 2", "i32"),
        ("u8_[i] < 300", "bool"),
        ("0 <= i < i32_[i]", "bool"),
        ("abs(c64_[i])", "f32"),
        ("real(c128_[i])", "f64"),
        ("bf16_[i] * f16_[i]", "f32"),
        ("bf16_[i] * 0.1", "bf16"),
        ("max(i8_[i], 3)", "i8"),
        ("where(bool_[i], i8_[i], 0)", "i8"),
        ("f16(f32_[i])", "f16"),
        ("10 ^ -3 * f32_[i]", "f32"),
        ("f32_[i] ^ -1", "f32"),
        ("i32_[i] ^ 2", "i32"),
    ],
)
def test_expressions(expression: str, dtype: str) -> None:
    assert dtype_of(expression) == dtype


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("sum[i] i8_[i]", "i64"),
        ("sum[i] u8_[i]", "u64"),
        ("sum[i] f16_[i]", "f16"),
        ("sum[i] bool_[i]", "i64"),
        ("sum[i : f64] f32_[i]", "f64"),
        ("sum[i : i32] i8_[i]", "i32"),
        ("prod[i] i32_[i]", "i64"),
        ("mean[i] i32_[i]", "f64"),
        ("mean[i] f32_[i]", "f32"),
        ("max[i] i8_[i]", "i8"),
        ("max[i] bool_[i]", "bool"),
        ("logsumexp[i] f32_[i]", "f32"),
        ("logsumexp[i] i32_[i]", "f64"),
        ("argmax[i] f32_[i]", "i64"),
        ("any[i] bool_[i]", "bool"),
        ("sum[n] 1", "i64"),
        ("sum[i] c64_[i]", "c64"),
        ("f32(s) * sum[n] 1 / (n + 1)", "f32"),
        ("f32(s) * sum[i] i32_[i]", "f64"),
    ],
)
def test_aggregations(expression: str, dtype: str) -> None:
    assert dtype_of(expression, left="y") == dtype


def test_a_named_number_is_a_number_and_a_tensor_of_them_is_not() -> None:
    assert dtype_of("i8_[i] * two", "two = 2") == "i8"
    assert dtype_of("i8_[i] * ones[i]", "ones[i: n] = 1") == "i64"
    assert dtype_of("f16_[i] * ones[i]", "ones[i: n] = 1") == "f16"
