"""The table of docs/products.md against what is chosen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from einturnip.eingraph.build.program import build
from einturnip.eingraph.types import EinsumNode
from einturnip.ir.einsum import Einsum
from einturnip.kernels import select
from einturnip.kernels.llvm.kernel_spec import KernelSpec
from einturnip.kernels.llvm.packed_spec import PackedSpec
from einturnip.lang import compile_text

PAGE = Path(__file__).parents[2] / "docs" / "products.md"
ROWS = re.findall(r"^\| `(.*)` \| (\w+), ([a-z0-9= ]+) \| ([\w ]+) \| (\w+) \|$", PAGE.read_text(), re.MULTILINE)


def einsum_of(statement: str, dtype: str, sizes: dict[str, int]) -> Einsum:
    """The einsum of a statement with two operands."""
    operands = dict(re.findall(r"(\w)\[([a-z,]+)\]", statement.partition("=")[2].partition("]")[2]))
    declared = "".join(f"input {name} : {dtype}[{axes}]\n" for name, axes in operands.items())
    out = statement.partition(" =")[0].partition("[")[0]
    shapes = {name: tuple(sizes[label] for label in axes.split(",")) for name, axes in operands.items()}
    nodes = build(compile_text(f"{declared}{statement}\noutput {out}\n", "k.ein"), shapes, {}).nodes
    (node,) = [n for n in nodes if isinstance(n, EinsumNode)]
    assert isinstance(node.einsum, Einsum)
    return node.einsum


def test_the_page_has_its_rows() -> None:
    assert len(ROWS) == PAGE.read_text().count("\n| `")


@pytest.mark.parametrize(("statement", "dtype", "sizes", "compiled", "otherwise"), ROWS)
def test_a_row(statement: str, dtype: str, sizes: str, compiled: str, otherwise: str) -> None:
    bounds = {label: int(n) for label, n in (size.split("=") for size in sizes.split())}
    einsum = einsum_of(statement, dtype, bounds)
    without = "NumPy" if select.blas_spec(einsum, einsum.bounds, "full") is None else "BLAS"
    code: object = select.product_code(einsum, einsum.bounds, "full")
    if select.product_spec(einsum, einsum.bounds, "full") is None:
        code = next(iter(select.machine_code(einsum, "full")), None)
    made = without
    if isinstance(code, PackedSpec):
        made = "packed nest"
    elif isinstance(code, KernelSpec):
        made = "loop nest"
    assert (made, without) == (compiled, otherwise)
