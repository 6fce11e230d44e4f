"""The cases on a GPU: parts a to d of ``einturnip bench gpu``; part e runs c and d in two orders."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.cases import _TCCG, BenchCase, _einsum, _joins, _rows

GB = 10**9
LAYERS = 32  # of a LLaMA-7B
CAPS = (4 * GB, 8 * GB, 16 * GB, None)


@dataclass(frozen=True)
class GpuCase:
    """A case with its inputs' dtype, whether factors may be rounded to tf32, and the caps of its arena."""

    part: str
    case: BenchCase
    dtype: str = "f32"
    tf32: bool = False
    caps: tuple[int | None, ...] = (None,)

    @property
    def name(self) -> str:
        """A unique name."""
        return f"{self.part}: {self.case.name} {'tf32' if self.tf32 else self.dtype}"


def gpu_cases(tiny: bool) -> list[GpuCase]:
    """Every case; ``tiny`` ones do the same with few numbers."""
    return [*_products(tiny), *_kernels(tiny), *_prefills(tiny), *_chains(tiny)]


def typed(case: BenchCase, dtype: str) -> BenchCase:
    """The same with inputs of another dtype."""
    nbytes = case.nbytes * (4 if dtype in ("f32", "tf32") else 2) / 4
    return replace(case, program=case.program.replace(": f32[", f": {dtype}["), nbytes=nbytes)


def _products(tiny: bool) -> Iterator[GpuCase]:
    n, thin, batch = (16, 4, 2) if tiny else (8192, 16, 64)
    shapes = [
        _einsum("product, square", "ik,kj->ij", dict(i=n, j=n, k=n)),
        _einsum("product, few rows", "ik,kj->ij", dict(i=thin, j=n, k=n)),
        _einsum("product, short sums", "ik,kj->ij", dict(i=n, j=n, k=thin)),
        _einsum("products, batched", "bik,bkj->bij", dict(b=batch, i=n // 8, j=n // 8, k=n // 8)),
        *(_einsum(f"tccg {e}", e, {x: max(2, v // 16) if tiny else v for x, v in s.items()}) for e, s in _TCCG),
    ]
    for case in shapes:
        for dtype, tf32 in (("f32", False), ("f32", True), ("bf16", False), ("f16", False)):
            yield GpuCase("a", typed(case, dtype), dtype, tf32)
    small = 8 if tiny else 64
    lines = [f"X{k + 1}[i,j] = sum[k] X{k}[i,k] * B[k,j]" for k in range(4 if tiny else 256)]
    program = "\n".join(["input X0 : f32[i,j], B : f32[k,j]", *lines, f"output X{len(lines)}", ""])
    square = dict(X0=(small, small), B=(small, small))
    yield GpuCase("a", BenchCase("many small ops", "", "", program, square, 0.0, 0.0, {}))


def _kernels(tiny: bool) -> Iterator[GpuCase]:
    """Rows of 16384 numbers, and joins: max-plus replaces min-plus, which is the same work."""
    for case in _rows(32 if tiny else 16384):
        yield GpuCase("b", case)
    for case in _joins(True):
        n, d = (24, 8) if tiny else (8192, 64)
        shapes = dict(X=(n, d), Y=(n, d)) if case.kind == "l2" else dict(X=(n // 2, n // 2), Y=(n // 2, n // 2))
        flops = 3.0 * n * n * d if case.kind == "l2" else 2.0 * (n // 2) ** 3
        yield GpuCase("b", replace(case, shapes=shapes, flops=flops))


def _prefills(tiny: bool) -> Iterator[GpuCase]:
    for s, b in [(4, 2)] if tiny else [(s, b) for s in (1024, 4096, 16384) for b in (1, 8)]:
        sizes = dict(l=2, e=16, h=2, d=8, f=24) if tiny else dict(l=LAYERS, e=4096, h=32, d=128, f=11008)
        yield GpuCase("c", prefill(sizes | dict(b=b, s=s)), "f16", caps=(None,) if tiny else CAPS)


def prefill(sizes: dict[str, int]) -> BenchCase:
    """Layers of LLaMA's shapes with random weights: masked attention and a gated product, no norms."""
    weights = dict(Q="ehd", K="ehd", V="ehd", O="hde", G="ef", U="ef", D="fe")
    lines, shapes, x = ["import std.nn", "input X : f16[b,s,e]"], {"X": tuple(sizes[c] for c in "bse")}, "X"
    for n in range(sizes["l"]):
        for name, labels in weights.items():
            lines.append(f"input {name}{n} : f16[{','.join(labels)}]")
            shapes[f"{name}{n}"] = tuple(sizes[c] for c in labels)
        lines += [f"{v.lower()}{n}[b,h,s,d] = sum[e] {x}[b,s,e] * {v}{n}[e,h,d]" for v in "QKV"]
        lines += [
            f"a{n}[b,h,s,d] = causal_attention(q{n}[b,h,s,d], k{n}[b,h,s,d], v{n}[b,h,s,d])",
            f"y{n}[b,s,e] = {x}[b,s,e] + sum[h,d] a{n}[b,h,s,d] * O{n}[h,d,e]",
            f"g{n}[b,s,f] = silu(sum[e] y{n}[b,s,e] * G{n}[e,f]) * (sum[e] y{n}[b,s,e] * U{n}[e,f])",
            f"z{n}[b,s,e] = y{n}[b,s,e] + sum[f] g{n}[b,s,f] * D{n}[f,e]",
        ]
        x = f"z{n}"
    held = 2.0 * sum(map(math.prod, shapes.values()))
    tokens, layer = sizes["b"] * sizes["s"], held / 2 - math.prod(shapes["X"])
    flops = 2.0 * tokens * layer + 2.0 * sizes["l"] * tokens * sizes["s"] * sizes["h"] * sizes["d"]
    name = f"prefill of {sizes['b']} x {sizes['s']}"
    return BenchCase(name, "prefill", "", "\n".join([*lines, f"output {x}", ""]), shapes, flops, held, {}, 1e-2)


def _chains(tiny: bool) -> Iterator[GpuCase]:
    n = 16 if tiny else 60_000
    program = "input A : f32[i,k], B : f32[k,j]\nC[i,j] = sum[k] A[i,k] * B[k,j]\nD[i,j] = sum[k] C[i,k] * B[k,j]\n"
    case = BenchCase("chain of products", "chain", "", program + "output D\n", dict(A=(n, n), B=(n, n)), 4.0 * n**3,
                12.0 * n * n, {})  # fmt: skip
    for dtype in ("f16", "f32"):
        yield GpuCase("d", typed(case, dtype), dtype, caps=(None,) if tiny else (8 * GB, None))
