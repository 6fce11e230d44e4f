"""The LLVM IR of each primitive of a join's graph, on vectors."""

from __future__ import annotations

import numpy as np

from einturnip.ir.dtypes import DType
from einturnip.kernels.expr.graph import PrimitiveGraph, PrimitiveNode
from einturnip.kernels.llvm.functions import POLYNOMIALS, MathFunctions
from einturnip.kernels.llvm.ir import IrBuilder, IrValue, element

_FLOATS = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "true_divide": "fdiv"}
_WHOLES = {"add": "add", "subtract": "sub", "multiply": "mul"}
_TESTS = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne"}
_BITS = {"logical_and": "and", "logical_or": "or", "bitwise_and": "and"}
_INTRINSICS = {"floor": "floor", "ceil": "ceil", "rint": "rint", "sqrt": "sqrt"}
# Comparisons of floats raise "invalid" on NaN, which NumPy does not report.
COMPARING = frozenset({*_TESTS, "maximum", "minimum", "sign"})
_LEAVES = frozenset({"input", "guarded", "number", "iota"})
_COMMON = _LEAVES | {"select", "convert", "narrow_bf16", "negative", "square", "absolute"}
WRITABLE = _COMMON | COMPARING | {*_FLOATS, *_BITS, *_INTRINSICS, *POLYNOMIALS, "logical_not", "reciprocal", "copysign"}


def is_known(graph: PrimitiveGraph, node: PrimitiveNode) -> bool:
    """Return whether a node can be written; NumPy computes the others."""
    kinds = {node.dtype.kind, *(graph[a].dtype.kind for a in node.arguments)}
    if node.op not in WRITABLE or "c" in kinds:
        return False
    if node.op == "convert":
        source = graph[node.arguments[0]].dtype
        # Float to integer out of range depends on the processor; f64 to f16 is a function of a library.
        return not (source.is_float and node.dtype.is_integer) and (source.name, node.dtype.name) != ("f64", "f16")
    if node.op == "true_divide" or node.op in POLYNOMIALS or node.op in ("sqrt", "reciprocal", "copysign"):
        return node.dtype.name in ("f32", "f64")
    if node.op in ("sign", "absolute", "floor", "ceil", "rint"):
        return node.dtype.name in ("f32", "f64") or (node.op in ("sign", "absolute") and node.dtype.kind == "i")
    return True


def write(code: IrBuilder, node: PrimitiveNode, arguments: list[IrValue], types: list[DType]) -> IrValue:
    """Write a node that is neither a (guarded) input nor an iota, from the values of its arguments."""
    op = node.op
    is_float = types[0].is_float if types else node.dtype.is_float
    if op == "number":
        assert isinstance(node.payload, bytes)
        number = np.frombuffer(node.payload, node.dtype.numpy)[0]
        return code.constant(float(number) if node.dtype.is_float else int(number), element(node.dtype))
    if op in _TESTS:
        return _test(code, op, arguments, types[0])
    if op in _BITS and not is_float:
        return code.binary(_BITS[op], *arguments)
    if op == "logical_not":
        return code.binary("xor", arguments[0], code.constant(1, "i1", arguments[0].width))
    if op in ("maximum", "minimum"):
        return extremum(code, op == "maximum", arguments[0], arguments[1], types[0], careful=True)
    if op in ("convert", "narrow_bf16"):
        return convert(code, arguments[0], types[0], node.dtype)
    if op == "select":
        return code.select(*arguments)
    if op in _FLOATS:
        if node.dtype.kind == "b":
            return code.binary("or" if op == "add" else "and", *arguments)
        return code.binary((_FLOATS if is_float else _WHOLES)[op], *arguments)
    return _unary(code, op, arguments, types[0])


def _unary(code: IrBuilder, op: str, arguments: list[IrValue], dtype: DType) -> IrValue:
    x = arguments[0]
    if op in _INTRINSICS:
        return code.intrinsic(_INTRINSICS[op], x)
    if op in POLYNOMIALS:
        return POLYNOMIALS[op](MathFunctions(code, x), x)
    zero = code.constant(0, x.element, x.width)
    match op:
        case "negative":
            return code.make(f"fneg {x}", x.element, x.width) if dtype.is_float else code.binary("sub", zero, x)
        case "square":
            return code.binary("fmul" if dtype.is_float else "mul", x, x)
        case "reciprocal":
            return code.binary("fdiv", code.constant(1, x.element, x.width), x)
        case "copysign":
            return code.intrinsic("copysign", x, arguments[1])
        case "absolute":
            if dtype.is_float:
                return code.intrinsic("fabs", x)
            negative = code.compare("icmp slt", x, zero)
            return code.select(negative, code.binary("sub", zero, x), x)
        case "sign":
            return _sign(code, x, zero, dtype)
    raise KeyError(op)


def _test(code: IrBuilder, op: str, arguments: list[IrValue], dtype: DType) -> IrValue:
    test = _TESTS[op]
    if dtype.is_float:
        return code.compare("fcmp une" if test == "ne" else f"fcmp o{test}", *arguments)
    sign = "" if test in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
    return code.compare(f"icmp {sign}{test}", *arguments)


def _sign(code: IrBuilder, x: IrValue, zero: IrValue, dtype: DType) -> IrValue:
    """Return 1, -1, or the number itself: 0 and NaN."""
    test = "fcmp o" if dtype.is_float else "icmp s"
    one, minus = (code.constant(v, x.element, x.width) for v in (1, -1))
    below = code.select(code.compare(f"{test}lt", x, zero), minus, x)
    return code.select(code.compare(f"{test}gt", x, zero), one, below)


def extremum(code: IrBuilder, greatest: bool, a: IrValue, b: IrValue, dtype: DType, careful: bool) -> IrValue:
    """Return the greater or the smaller.

    ``careful``: NaN if either is; else ``b`` if either is NaN. Comparing a NaN raises "invalid".
    """
    if not dtype.is_float:
        sign = "s" if dtype.kind == "i" else "u"
        return code.select(code.compare(f"icmp {sign}{'gt' if greatest else 'lt'}", a, b), a, b)
    better = code.select(code.compare(f"fcmp o{'gt' if greatest else 'lt'}", a, b), a, b)
    return code.select(code.compare("fcmp uno", a, a), a, better) if careful else better


def convert(code: IrBuilder, x: IrValue, source: DType, target: DType) -> IrValue:
    """Convert as ``astype`` does."""
    kind = element(target)
    if source == target:
        return x
    if target.kind == "b":
        zero = code.constant(0, x.element, x.width)
        return code.compare("fcmp une" if source.is_float else "icmp ne", x, zero)
    if source.is_float and target.is_float:
        return _refloat(code, x, source, target)
    if target.is_float:
        return _refloat_whole(code, x, source, target)
    if source.kind == "b" or source.itemsize < target.itemsize:
        return code.cast("sext" if source.kind == "i" else "zext", x, kind)
    return code.cast("trunc", x, kind) if source.itemsize > target.itemsize else x


def _refloat_whole(code: IrBuilder, x: IrValue, source: DType, target: DType) -> IrValue:
    """Convert an integer or bool to a float; to a narrow one by way of f32."""
    op = "sitofp" if source.kind == "i" else "uitofp"
    if target.name in ("f32", "f64"):
        return code.cast(op, x, element(target))
    return code.cast("fptrunc", code.cast(op, x, "float"), element(target))


def _refloat(code: IrBuilder, x: IrValue, source: DType, target: DType) -> IrValue:
    kind = element(target)
    if source.itemsize == target.itemsize:  # f16 and bf16, by f32
        return code.cast("fptrunc", code.cast("fpext", x, "float"), kind)
    return code.cast("fpext" if source.itemsize < target.itemsize else "fptrunc", x, kind)
