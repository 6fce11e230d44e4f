"""The scalar operators of ``scalar.cuh`` against the reference, at numbers where they are hard; and what they tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from einturnip.ir.aggregations import aggregation
from einturnip.ir.dtypes import BOOL, DTYPES, F32, F64, I32, I64, DType
from einturnip.ir.einsum import Einsum, Key
from einturnip.ir.functions import ELEMENTWISE
from einturnip.ir.scalar import OperandRef, Scalar, ScalarCall, ScalarCast, ScalarConst
from einturnip.kernels.cuda.generate import generate
from einturnip.kernels.fp_status import DIVIDE, INVALID, OVERFLOW
from tests.reference.einsum import evaluate_einsum

from .drawn import close
from .emulation import Emulator, Form, no_nvrtc, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

INTEGERS = tuple(d for d in DTYPES.values() if d.is_integer)
REALS = tuple(d for d in DTYPES.values() if d.is_float)
COMPLEX = tuple(d for d in DTYPES.values() if d.kind == "c")
WIDE = tuple(name for name, row in ELEMENTWISE.items() if not row.keeps_integers)
REAL = ("neg", *(name for name in ELEMENTWISE if name not in ("conj", "real", "imag")))
PLANE = ("neg", *(name for name, row in ELEMENTWISE.items() if row.takes_complex and not row.returns_real))
ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "pow", "min", "max")
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


def numbers(dtype: DType) -> np.ndarray:
    """Edges of a type."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        edges = [info.min, info.min + 1, -3 % (info.max + 1), 0, 1, 2, 7, info.max - 1, info.max]
        return np.array(edges, dtype.numpy)
    plain = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -7, 0.1, 1e-3, 20, -20, 300, np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        if dtype.kind == "f":
            return np.array(plain).astype(dtype.numpy)
        finite = [x for x in plain if np.isfinite(x) and abs(x) < 10]
        return np.array([complex(a, b) for a in finite for b in finite]).astype(dtype.numpy)


def unary(op: str, source: DType, result: DType) -> Einsum:
    wide = ScalarCast(OperandRef(0, source), result) if op in WIDE and source != result else OperandRef(0, source)
    return Einsum(("i",), (len(numbers(source)),), 1, ((0,),), (source,), ScalarCall(op, (wide,), result), None)


def binary(op: str, dtype: DType, result: DType) -> Einsum:
    n = len(numbers(dtype))
    join = ScalarCall(op, (OperandRef(0, dtype), OperandRef(1, dtype)), result)
    return Einsum(tuple("ij"), (n, n), 2, ((0,), (1,)), (dtype, dtype), join, None)


def cast(source: DType, result: DType) -> Einsum:
    return Einsum(
        ("i",), (len(numbers(source)),), 1, ((0,),), (source,), ScalarCast(OperandRef(0, source), result), None
    )


def cases() -> list[Einsum]:
    found = [unary(op, d, d) for op in REAL for d in REALS]
    found += [unary(op, d, d) for op in PLANE for d in COMPLEX]
    found += [unary(op, d, F64 if d.name == "c128" else F32) for op in ("abs", "real", "imag") for d in COMPLEX]
    found += [unary(op, d, d) for op in ("neg", "abs", "sign", "floor") for d in INTEGERS]
    found += [binary(op, d, d) for op in ARITHMETIC for d in (*INTEGERS, *REALS)]
    found += [binary(op, d, BOOL) for op in COMPARED for d in (*INTEGERS, *REALS)]
    found += [binary(op, d, d) for op in ("add", "sub", "mul", "div") for d in COMPLEX]
    found += [binary(op, d, BOOL) for op in ("eq", "ne") for d in COMPLEX]
    found += [binary("div", d, d) for d in REALS]
    found += [binary(op, BOOL, BOOL) for op in ("add", "mul", "min", "max", "and", "or")]
    found += [cast(a, b) for a in DTYPES.values() for b in DTYPES.values() if a != b]
    return found


@pytest.mark.parametrize("form", ["source", pytest.param("ptx", marks=pytest.mark.slow)])
def test_every_operator_and_cast(form: Form, tmp_path: Path) -> None:
    if form == "ptx" and no_nvrtc():
        pytest.skip(no_nvrtc())
    spaces = cases()
    kernels = [generate(e, "full") for e in spaces]
    emulator = Emulator(kernels, tmp_path, form)
    wrong = []
    for e, kernel in zip(spaces, kernels, strict=True):
        operands = [numbers(d) for d in e.dtypes]
        if isinstance(e.join, ScalarCast) and not e.dtype.is_inexact and e.dtype.kind != "b":  # beyond: C says nothing
            x = operands[0]
            inside = np.isfinite(x) & (np.abs(x.astype(np.complex128)) < 100) if e.dtypes[0].is_inexact else x == x
            operands = [np.where(inside & ((np.nan_to_num(x.real) >= 0) | (e.dtype.kind != "u")), x, 1).astype(x.dtype)]
        out = np.zeros(e.shape, e.dtype.numpy)
        emulator.call(kernel, e.bounds, [out], operands, [0] * len(e.bounds))
        expected = evaluate_einsum(e, operands)[0]
        try:
            close(
                out,
                expected,
                2e-3 if e.dtype.itemsize == 2 and e.dtype.name == "f16" else 1e-2 if e.dtype.name == "bf16" else 3e-6,
            )
        except AssertionError as error:
            wrong.append(f"{e.join}: {error}\n{out}\n{expected}")
    assert not wrong, f"{len(wrong)} of {len(spaces)}\n" + "\n".join(wrong[:5])


def flags(join: Scalar, x: list[float], tmp_path: Path, dtype: DType = F32) -> int:
    e = Einsum(("i",), (len(x),), 1, ((0,),), (dtype,), join, None)
    kernel = generate(e, "full")
    out = np.zeros(e.shape, e.dtype.numpy)
    return int(Emulator([kernel], tmp_path).call(kernel, e.bounds, [out], [np.array(x, dtype.numpy)], [0])[0])


def test_what_makes_a_nan_or_an_infinity_is_told(tmp_path: Path) -> None:
    x, zero = OperandRef(0, F32), ScalarConst(0.0, F32)
    assert flags(ScalarCall("log", (x,), F32), [1.0, -1.0], tmp_path) == INVALID
    assert flags(ScalarCall("log", (x,), F32), [1.0, 0.0], tmp_path) == DIVIDE
    assert flags(ScalarCall("exp", (x,), F32), [1.0, 200.0], tmp_path) == OVERFLOW
    assert flags(ScalarCall("div", (x, zero), F32), [1.0], tmp_path) == DIVIDE
    assert flags(ScalarCall("div", (x, zero), F32), [0.0], tmp_path) == INVALID
    assert flags(ScalarCall("exp", (x,), F32), [np.nan, np.inf, -np.inf, 3.0], tmp_path) == 0
    assert flags(ScalarCall("sigmoid", (x,), F32), [-500.0], tmp_path) == 0
    assert flags(ScalarCall("floordiv", (OperandRef(0, I32), ScalarConst(0, I32)), I32), [3], tmp_path, I32) == DIVIDE


@pytest.mark.parametrize("scatter", [False, True])
def test_an_index_outside_its_axis_is_told_with_its_place(scatter: bool, tmp_path: Path) -> None:
    """The first wrong one, whatever the order of the threads."""
    gather = Einsum(
        tuple("sdv"), (900, 2, 5), 2, ((2, 1), (0,)), (F32, I64), OperandRef(0, F32), aggregation("pick", F32),
        ((5, 2), (900,)), (Key(2, OperandRef(1, I64)),),
    )  # fmt: skip
    groups = Einsum(
        tuple("udi"), (5, 2, 900), 2, ((2, 1), (2,)), (F32, I64), OperandRef(0, F32), aggregation("sum", F32,
        keyed=True), ((900, 2), (900,)), (Key(0, OperandRef(1, I64)),),
    )  # fmt: skip
    e = groups if scatter else gather
    ids = np.arange(900) % 5
    ids[[411, 700, 850]] = 77, -1, 5
    kernel = generate(e, "full")
    emulator = Emulator([kernel], tmp_path)
    for falling in (False, True):
        out = np.zeros(e.shape, np.float32)
        operands = [np.ones(e.shapes[0], np.float32), ids]
        status = emulator.call(kernel, e.bounds, [out], operands, [0, 0, 0], falling=falling)
        point = np.unravel_index(status[1], [max(1, n) for n in e.bounds])
        assert point == ((0, 0, 411) if scatter else (411, 0, 0))
        assert (status[2], status[3]) == (0, 77)
