"""Elementary functions in machine code: their errors, and the floating-point flags that they raise."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest

from einturnip.core import process_resources
from einturnip.kernels.fp_status import DIVIDE, INVALID, OVERFLOW, unit
from einturnip.kernels.llvm import compiler, elf
from einturnip.kernels.llvm.functions import POLYNOMIALS, MathFunctions
from einturnip.kernels.llvm.ir import IrBuilder, IrValue

pytestmark = pytest.mark.machine_code
WIDTH = 16
KINDS: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
# Largest errors in units in the last place, where the result is a normal number.
MAX_ULP = 3.1
ULP = {"exp": 1.6, "exp_quiet": 1.6, "expm1": 2.1, "log": 1.6, "log1p": 2.1}
NUMPY: dict[str, np.ufunc] = {name: getattr(np, name.removesuffix("_quiet")) for name in POLYNOMIALS}
INF, NAN = np.inf, np.nan
SEEN = [
    ("exp", (0.0, -1000.0, -INF, INF, NAN, 1.0), 0),
    ("exp", (1000.0,), OVERFLOW),
    ("exp", (-103.97, -745.2, -3e38, 88.7), 0),
    ("exp_quiet", (1000.0, -1000.0, INF, NAN), 0),
    ("expm1", (0.0, -1000.0, -INF, INF, NAN, 1e-30), 0),
    ("expm1", (1000.0,), OVERFLOW),
    ("log", (1.0, INF, NAN, 1e-40, 1e30), 0),
    ("log", (0.0,), DIVIDE),
    ("log", (-0.0,), DIVIDE),
    ("log", (-1.0,), INVALID),
    ("log1p", (0.0, INF, NAN, 1e30, 1e-30), 0),
    ("log1p", (-1.0,), DIVIDE),
    ("log1p", (-2.0,), INVALID),
    ("tanh", (0.0, -1000.0, 1000.0, INF, -INF, NAN), 0),
    *((name, (NAN, 0.5), 0) for name in POLYNOMIALS),
]


@pytest.fixture(scope="module", params=["as here", "as anywhere"])
def functions(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Callable[[np.ndarray], np.ndarray]]]:
    """A function over an array of a whole number of vectors, by this processor's own instructions and without them."""
    machine, features = compiler.machine()
    plain = request.param == "as anywhere"
    kept: dict[tuple[str, str], elf.LoadedCode] = {}

    def get(name: str, kind: str) -> Callable[[np.ndarray], np.ndarray]:
        if (name, kind) not in kept:
            with mock.patch.object(process_resources, "processor_features", frozenset) if plain else nullcontext():
                text = source(name, kind)
            kept[name, kind] = elf.load(compiler.compiled(machine, features, text), "kernel")
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(kept[name, kind].address)

        def run(x: np.ndarray) -> np.ndarray:
            out = np.empty_like(x)
            call(x.ctypes.data, out.ctypes.data, x.nbytes)
            return out

        return run

    yield get


def source(name: str, kind: str) -> str:
    """The IR of ``out[i] = name(x[i])``."""
    code, width = IrBuilder(), 64 // KINDS[kind].itemsize

    def body(index: IrValue, _: list[IrValue]) -> list[IrValue]:
        here, there = (code.pointer(IrValue(p, "ptr", 0), index) for p in ("%x", "%out"))
        x = code.make(f"load <{width} x {kind}>, {here}, align 1", kind, width)
        code.line(f"store {getattr(MathFunctions(code, x), name)(x)}, {there}, align 1")
        return []

    code.loop(IrValue("0", "i64", 0), IrValue("%n", "i64", 0), width * KINDS[kind].itemsize, [], body)
    text = "\n".join(code.lines)
    head = "define void @kernel(ptr noalias %x, ptr noalias %out, i64 %n) #0 {\nentry:\n"
    return f"{head}{text}\n  ret void\n}}\n" + "\n".join(code.declared)


def arguments(name: str, dtype: np.dtype[Any]) -> np.ndarray:
    """Where the function is to be right: all its range, and densely where it bends."""
    rng = np.random.default_rng(3)
    far = {"exp": 88.7 if dtype.itemsize == 4 else 709.0, "tanh": 20.0}.get(name.removesuffix("_quiet"), 80.0)
    spread = np.concatenate(
        [rng.uniform(-far, far, 40000), rng.uniform(-1, 1, 40000), 10 ** rng.uniform(-30, 0, 20000)]
    )
    if name == "log":
        spread = np.concatenate([np.abs(spread), 1 + rng.uniform(-0.3, 0.5, 20000), 10 ** rng.uniform(-37, 37, 20000)])
    if name == "log1p":
        spread = spread[spread > -1]
    found: np.ndarray = spread[: spread.size // WIDTH * WIDTH].astype(dtype)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_the_error_is_small(name: str, kind: str, functions: Callable[..., Any]) -> None:
    dtype = KINDS[kind]
    x = arguments(name, dtype)
    wide = NUMPY[name](x.astype(np.longdouble))
    with np.errstate(all="ignore"):
        normal = np.isfinite(wide.astype(dtype)) & (np.abs(wide) >= np.finfo(dtype).tiny) & (x != 0)
        error = np.abs(functions(name, kind)(x).astype(np.longdouble) - wide) / np.spacing(np.abs(wide).astype(dtype))
    assert float(error[normal].max()) <= ULP.get(name, MAX_ULP)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "values", "expected"), SEEN)
def test_what_the_unit_sees(
    name: str, values: tuple[float, ...], expected: int, kind: str, functions: Callable[..., Any]
) -> None:
    run = functions(name, kind)
    for value in values:
        x = np.full(WIDTH, value, KINDS[kind])
        unit().clear()
        got = run(x)
        assert unit().read() == expected, value
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got, NUMPY[name](x), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_below_the_normal_ones(kind: str, functions: Callable[..., Any]) -> None:
    dtype = KINDS[kind]
    least = float(np.finfo(dtype).smallest_subnormal)
    x = np.array([least, 3 * least, 1000 * least, float(np.finfo(dtype).tiny)] * 4, dtype)
    np.testing.assert_allclose(functions("log", kind)(x), np.log(x), rtol=4 * np.finfo(dtype).eps)
    low = -100.0 if kind == "float" else -740.0
    np.testing.assert_allclose(functions("exp", kind)(np.full(16, low, dtype)), np.exp(dtype.type(low)), rtol=0.02)
