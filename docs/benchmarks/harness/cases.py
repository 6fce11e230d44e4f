"""The cases in memory: programs in the language with their sizes, and the kind of work for peers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from einturnip.kernels.llvm.peak import Operations

# Index patterns of the TCCG benchmark (Springer and Bientinesi), output-left-right, with sizes that fit two cores.
_TCCG: tuple[tuple[str, dict[str, int]], ...] = (
    ("efbad,cf->abcde", dict(a=48, b=32, c=24, d=32, e=48, f=32)),
    ("dbea,ec->abcd", dict.fromkeys("abcde", 72)),
    ("bda,dc->abc", dict(a=312, b=296, c=312, d=312)),
    ("dega,gfbc->abcdef", dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24)),
    ("ea,ebcd->abcd", dict.fromkeys("abcde", 72)),
    ("cad,dcb->ab", dict(a=312, b=312, c=296, d=312)),
    ("aebf,fdec->abcd", dict.fromkeys("abcdef", 72)),
    ("imjn,lnkm->ijkl", dict.fromkeys("ijklmn", 64)),
    ("pa,pqrs->aqrs", dict.fromkeys("apqrs", 72)),
    ("bka,kj->abj", dict.fromkeys("abjk", 312)),
    ("ijma,mkbc->abcijk", dict(a=24, b=16, c=16, i=24, j=16, k=16, m=24)),
    ("bk,akc->abc", dict.fromkeys("abck", 312)),
)


@dataclass(frozen=True)
class BenchCase:
    """One case. ``shapes``: of each input, in program order; ``integers``: the inputs that are indices.

    ``kind`` and ``detail`` define the work for peers (``harness.peers``). ``flops``: multiplications and additions, a
    scalar function counted as one; ``nbytes``: bytes that must be read and written once. ``peak``: the arithmetic peak
    to compare with, if BLAS is no measure.
    """

    name: str
    kind: str
    detail: str
    program: str
    shapes: Mapping[str, tuple[int, ...]]
    flops: float
    nbytes: float
    integers: Mapping[str, int]
    tolerance: float = 1e-4
    peak: Operations | None = None


def in_memory(small: bool = False) -> list[BenchCase]:
    """Every case in memory; ``small`` ones take milliseconds, to test the harness."""
    n = 64 if small else 2048
    wide = 128 if small else 4096
    return [
        _einsum("matmul", "ik,kj->ij", dict(i=n, j=n, k=n)),
        _einsum("matmul, skinny", "ik,kj->ij", dict(i=8 * n, j=32, k=n)),
        _einsum("matrix times vector", "ik,k->i", dict(i=2 * wide, k=2 * wide)),
        _einsum("outer product", "i,j->ij", dict(i=wide, j=wide)),
        _einsum("batched", "bik,bkj->bij", dict(b=32, i=n // 4, j=n // 4, k=n // 4)),
        *[_einsum(f"tccg {e}", e, {x: max(2, v // 8) if small else v for x, v in sizes.items()}) for e, sizes in _TCCG],
        _einsum("bilinear", "bi,ijk,bk->bj", dict.fromkeys("bijk", 16 if small else 256)),
        _einsum("mttkrp", "ijk,jr,kr->ir", dict(i=n // 8, j=n // 8, k=n // 8, r=64)),
        _einsum("chain of six", "ab,bc,cd,de,ef,fg->ag", _chain(16 if small else 256)),
        *_attention(64 if small else 512),
        *_joins(small),
        *_rows(wide),
        *_moves(wide, small),
        _mlp(64 if small else 1024),
    ]


def _chain(n: int) -> dict[str, int]:
    return {x: n if k % 2 else n // 4 for k, x in enumerate("abcdefg")}


def _einsum(name: str, equation: str, sizes: dict[str, int]) -> BenchCase:
    left, out = equation.split("->")
    terms = left.split(",")
    names = "ABCDEF"[: len(terms)]
    read = " * ".join(f"{x}[{','.join(t)}]" for x, t in zip(names, terms, strict=True))
    heads = "\n".join(f"input {x} : f32[{', '.join(t)}]" for x, t in zip(names, terms, strict=True))
    program = f"{heads}\nZ[{','.join(out)}] = {read}\noutput Z\n"
    shapes = {x: tuple(sizes[c] for c in t) for x, t in zip(names, terms, strict=True)}
    written = tuple(sizes[c] for c in out)
    flops = 2.0 * math.prod(sizes[c] for c in set(left) - {","})
    if len(terms) > 2:  # in the best order of pairs
        import opt_einsum

        flops = 2.0 * float(opt_einsum.contract_path(equation, *shapes.values(), shapes=True)[1].opt_cost) / 2
    nbytes = 4.0 * (sum(map(math.prod, shapes.values())) + math.prod(written))
    return BenchCase(name, "einsum", equation, program, shapes, flops, nbytes, {})


def _attention(n: int) -> list[BenchCase]:
    shape = (4, 8, n, 64)
    made = []
    for kind, share in (("attention", 1.0), ("causal_attention", 0.5)):
        program = (
            "import std.nn\ninput Q : f32[b,h,s,d], K : f32[b,h,t,d], V : f32[b,h,t,d]\n"
            f"Z[b,h,s,d] = {kind}(Q[b,h,s,d], K[b,h,t,d], V[b,h,t,d])\noutput Z\n"
        )
        flops = share * 4.0 * math.prod(shape) * n
        shapes = dict(Q=shape, K=shape, V=shape)
        made.append(BenchCase(kind.replace("_", " "), kind, "", program, shapes, flops, 16.0 * math.prod(shape), {}))
    return made


def _joins(small: bool) -> list[BenchCase]:
    n, d = (50, 16) if small else (2000, 64)
    m = 40 if small else 1000
    l2 = "input X : f32[i,d], Y : f32[j,d]\nZ[i,j] = sum[d] (X[i,d] - Y[j,d])^2\noutput Z\n"
    plus = "input X : f32[i,k], Y : f32[k,j]\nZ[i,j] = max[k] (X[i,k] + Y[k,j])\noutput Z\n"
    return [
        BenchCase(
            "squared distances",
            "l2",
            "",
            l2,
            dict(X=(n, d), Y=(n, d)),
            3.0 * n * n * d,
            4.0 * n * (n + 2 * d),
            {},
            peak="FMA",
        ),
        BenchCase(
            "max-plus", "max_plus", "", plus, dict(X=(m, m), Y=(m, m)), 2.0 * m**3, 12.0 * m * m, {}, peak="min/add"
        ),
    ]


def _rows(n: int) -> list[BenchCase]:
    both, one = 8.0 * n * n, 4.0 * n * n
    x = dict(X=(n, n))
    norm = (
        "import std.nn\ninput X : f32[i,j], g : f32[j], b : f32[j]\nZ[i,j] = layernorm(X[i,j], g[j], b[j])\noutput Z\n"
    )
    gate = "input X : f32[i,j], Y : f32[i,j]\nZ[i,j] = silu(X[i,j]) * Y[i,j]\noutput Z\n"
    return [
        BenchCase("logsumexp", "logsumexp", "", _program("Z[i] = logsumexp[j] X[i,j]"), x, 3.0 * n * n, one, {}),
        BenchCase("softmax", "softmax", "", _program("Z[i,j] = softmax(X[i,j])"), x, 5.0 * n * n, both, {}),
        BenchCase("layernorm", "layernorm", "", norm, dict(X=(n, n), g=(n,), b=(n,)), 8.0 * n * n, both, {}),
        BenchCase("SwiGLU", "swiglu", "", gate, dict(X=(n, n), Y=(n, n)), 5.0 * n * n, both + one, {}),
        BenchCase("sum of rows", "row_sum", "", _program("Z[i] = sum[j] X[i,j]"), x, 1.0 * n * n, one, {}),
        BenchCase("sum of columns", "column_sum", "", _program("Z[j] = sum[i] X[i,j]"), x, 1.0 * n * n, one, {}),
    ]


def _program(equation: str) -> str:
    return f"import std.nn\ninput X : f32[i,j]\n{equation}\noutput Z\n"


def _moves(n: int, small: bool) -> list[BenchCase]:
    side = 2 * n
    four = (8, 12, 16, 20) if small else (96, 64, 48, 112)
    rows, width, ids = (100, 32, 500) if small else (50_000, 512, 100_000)
    flip = "input X : f32[i,j]\nZ[j,i] = X[i,j]\noutput Z\n"
    turn = "input X : f32[a,b,c,d]\nZ[d,c,b,a] = X[a,b,c,d]\noutput Z\n"
    take = "input X : f32[v,d], ids : i64[s]\nZ[s,d] = X[ids[s], d]\noutput Z\n"
    return [
        BenchCase("transpose", "transpose", "10", flip, dict(X=(side, side)), 0.0, 8.0 * side * side, {}),
        BenchCase("transpose of four axes", "transpose", "3210", turn, dict(X=four), 0.0, 8.0 * math.prod(four), {}),
        BenchCase(
            "gather of rows",
            "gather",
            "",
            take,
            dict(X=(rows, width), ids=(ids,)),
            0.0,
            8.0 * ids * width,
            {"ids": rows},
        ),
    ]


def _mlp(n: int) -> BenchCase:
    program = (
        "input X : f32[s,d], A : f32[d,f], a : f32[f], B : f32[f,d], b : f32[d]\n"
        "H[s,f] = relu((sum[d] X[s,d] * A[d,f]) + a[f])\nZ[s,e] = (sum[f] H[s,f] * B[f,e]) + b[e]\noutput Z\n"
    )
    s, d, f = 2 * n, n, 4 * n
    shapes = dict(X=(s, d), A=(d, f), a=(f,), B=(f, d), b=(d,))
    nbytes = 4.0 * (2 * s * d + 2 * d * f)
    return BenchCase("two-layer MLP", "mlp", "", program, shapes, 4.0 * s * d * f, nbytes, {}, 1e-3)
