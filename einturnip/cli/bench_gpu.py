"""The parts of ``einturnip bench gpu``: programs, caps and peers, runs interleaved, medians."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from einturnip.api.program import compile as compile_program
from einturnip.core.errors import EinturnipError

GB = 10**9
ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A program, the sizes of its inputs, its dtype and the caps it runs under (None: no cap).

    ``subscripts``: the same for torch.einsum; empty where the peer has no such call.
    """

    part: str
    name: str
    text: str
    dims: dict[str, int]
    caps: tuple[int | None, ...] = (None,)
    subscripts: str = ""


def cases(tiny: bool) -> list[Case]:
    """All cases; ``tiny`` ones compute the same on a handful of numbers."""
    shrink: Callable[[int], int] = (lambda n: max(2, min(n, 16))) if tiny else (lambda n: n)
    found = [
        Case(case.part, case.name, case.text, {k: shrink(n) for k, n in case.dims.items()}, case.caps, case.subscripts)
        for case in (
            *_products(),
            *_kernels(),
            *(_prefill(s, 2 if tiny else LAYERS) for s in (1024, 4096, 16384)),
            *_chains(),
        )
    ]
    return [Case(**{**vars(c), "caps": (None,)}) for c in found] if tiny else found


def _products() -> Iterator[Case]:
    for dtype in ("f32", "bf16"):
        text = f"input A : {dtype}[m,k]\ninput B : {dtype}[k,n]\nC[i,j] = sum[k] A[i,k] * B[k,j]\noutput C\n"
        for m, n, k in ((8192, 8192, 8192), (16, 8192, 8192), (8192, 8192, 16)):
            yield Case("a", f"product {dtype} {m}x{n}x{k}", text, {"m": m, "n": n, "k": k}, (None,), "mk,kn->mn")
    text = "input A : f32[b,m,k]\ninput B : f32[b,k,n]\nC[b,i,j] = sum[k] A[b,i,k] * B[b,k,j]\noutput C\n"
    yield Case("a", "batched f32 64x1024", text, {"b": 64, "m": 1024, "n": 1024, "k": 1024}, (None,), "bmk,bkn->bmn")
    text = "input A : f32[a,b,c,d]\ninput B : f32[d,c,e]\nC[a,e,b] = sum[c,d] A[a,b,c,d] * B[d,c,e]\noutput C\n"
    yield Case("a", "contraction abcd,dce->aeb", text, dict.fromkeys("abcde", 96), (None,), "abcd,dce->aeb")


def _kernels() -> Iterator[Case]:
    one = "input X : f32[n,m]\n"
    two = "input X : f32[n,k]\ninput Y : f32[m,k]\n"
    wide, square = {"n": 16384, "m": 8192}, {"n": 4096, "m": 4096, "k": 64}
    softmax = one + "E[i,j] = exp(X[i,j] - max[j] X[i,j])\nS[i,j] = E[i,j] / sum[j] E[i,j]\noutput S\n"
    yield Case("b", "softmax", softmax, wide)
    yield Case("b", "row sums", one + "S[i] = sum[j] X[i,j]\noutput S\n", wide)
    yield Case("b", "column sums", one + "S[j] = sum[i] X[i,j]\noutput S\n", wide)
    yield Case("b", "squared distances", two + "D[i,j] = sum[k] (X[i,k] - Y[j,k])^2\noutput D\n", square)
    yield Case("b", "min-plus", two + "D[i,j] = min[k] (X[i,k] + Y[j,k])\noutput D\n", square)


def _prefill(s: int, layers: int) -> Case:
    """32 layers of a LLaMA-7B's shapes, each with weights of its own along the first axis of one tensor a kind."""
    lines = ["input X : f16[s,e]", "input Q : f16[l,e,h,d]", "input K : f16[l,e,h,d]", "input V : f16[l,e,h,d]"]
    lines += ["input O : f16[l,h,d,e]", "input G : f16[l,e,f]", "input U : f16[l,e,f]", "input D : f16[l,f,e]"]
    x = "X"
    for n in range(layers):
        a = {name: f"{name}{n}" for name in "qkvpwoygz"}
        lines += [f"{a[v.lower()]}[h,s,d] = sum[e] {x}[s,e] * {v}[{n},e,h,d]" for v in "QKV"]
        lines += [
            f"{a['p']}[h,s,t] = where(t <= s, (sum[d] {a['q']}[h,s,d] * {a['k']}[h,t,d]) / sqrt(d), -inf)",
            f"{a['w']}[h,s,t] = exp({a['p']}[h,s,t] - max[t] {a['p']}[h,s,t])",
            f"{a['o']}[h,s,d] = (sum[t] {a['w']}[h,s,t] * {a['v']}[h,t,d]) / sum[t] {a['w']}[h,s,t]",
            f"{a['y']}[s,e] = {x}[s,e] + sum[h,d] {a['o']}[h,s,d] * O[{n},h,d,e]",
            f"{a['g']}[s,f] = (sum[e] {a['y']}[s,e] * G[{n},e,f]) * (sum[e] {a['y']}[s,e] * U[{n},e,f])",
            f"{a['z']}[s,e] = {a['y']}[s,e] + sum[f] {a['g']}[s,f] * D[{n},f,e]",
        ]
        x = a["z"]
    text = "\n".join([*lines, f"output {x}", ""])
    dims = {"l": layers, "s": s, "e": 4096, "h": 32, "d": 128, "f": 11008}
    return Case("c", f"prefill of {s}", text, dims, (4 * GB, 8 * GB, 16 * GB, None))


LAYERS = 32


def _chains() -> Iterator[Case]:
    for dtype in ("f16", "f32"):
        text = f"input A : {dtype}[n,n]\ninput B : {dtype}[n,n]\nC[i,j] = sum[k] A[i,k] * B[k,j]\n"
        text += "D[i,j] = sum[k] C[i,k] * B[k,j]\noutput D\n"
        yield Case("d", f"chain {dtype} 60000", text, {"n": 60_000}, (8 * GB, None))


def run(out: Path, device: str, parts: tuple[str, ...], seconds: float, tiny: bool) -> Iterator[str]:
    """Run what ``out`` does not hold yet, a line for each case; then write the page."""
    file = out / "gpu.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for part in parts:
        until = time.monotonic() + seconds
        for case in (c for c in cases(tiny) if c.part == ("c" if part == "e" else part)):
            key = f"{part}: {case.name}"
            if key in done:
                continue
            if time.monotonic() > until:
                yield f"{key}: no time left; run the command again"
                continue
            done[key] = _measured(case, device, ("critical-path", "fixed") if part == "e" else ("critical-path",))
            file.write_text(json.dumps(done, indent=2) + "\n")
            yield f"{key}: {_told(done[key])}"
    (out / "gpu.md").write_text(_page(done))
    yield f"kept in {file} and {out / 'gpu.md'}"


def _measured(case: Case, device: str, policies: tuple[str, ...]) -> dict[str, Any]:
    """Medians of interleaved runs under every cap and policy, and of the peer's; an error stands for its figure."""
    runs: dict[str, Callable[[], float]] = {}
    program = compile_program(case.text)
    data = _data(case)
    for cap in case.caps:
        for policy in policies:
            name = f"{'no cap' if cap is None else f'{cap / GB:g} GB'}{'' if len(policies) == 1 else f', {policy}'}"

            def ours(cap: int | None = cap, policy: str = policy) -> float:
                report = program(data=data, device=device, memory=cap, policy=policy).report
                # Of parts a and b kernels alone are compared: the peer's operands lie on the GPU already.
                return report.lanes["compute"] if case.part in "ab" else report.wall_seconds

            runs[name] = ours
    peer = _torch(case, data)
    if peer is not None:
        runs["torch"] = peer
    taken: dict[str, list[float]] = {name: [] for name in runs}
    failed: dict[str, str] = {}
    for _ in range(ROUNDS):
        for name, one in runs.items():
            if name not in failed:
                try:
                    taken[name].append(one())
                except (EinturnipError, RuntimeError, MemoryError) as error:
                    failed[name] = str(error)
    return {
        "seconds": {name: statistics.median(t) for name, t in taken.items() if t},
        "runs": taken,
        "failed": failed,
        "date": time.strftime("%Y-%m-%d"),
    }


def _data(case: Case) -> dict[str, Any]:
    """Random inputs, the same at every call; drawn in f32, a block at a time where they are large."""
    import ml_dtypes

    dtypes = {"f16": np.float16, "f32": np.float32, "bf16": ml_dtypes.bfloat16}
    found: dict[str, Any] = {}
    random = np.random.default_rng(0)
    for line in (line for line in case.text.splitlines() if line.startswith("input ")):
        name, _, kind = line.removeprefix("input ").partition(" : ")
        dtype, _, names = kind.rstrip("]").partition("[")
        array = np.empty([case.dims[n] for n in names.split(",")], dtypes[dtype])
        flat = array.reshape(-1)
        for start in range(0, flat.size, 1 << 24):
            part = flat[start : start + (1 << 24)]
            part[...] = (random.random(part.size, np.float32) - 0.5) / 8
        found[name] = array
    return found


def _torch(case: Case, data: dict[str, Any]) -> Callable[[], float] | None:
    """The same by torch.einsum on the GPU; None where there is no PyTorch with CUDA, or it has no such call."""
    if not case.subscripts or find_spec("torch") is None:
        return None
    from importlib import import_module

    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        return None
    bf16 = "bf16" in case.name
    operands = [torch.from_numpy(x.astype(np.float32)).cuda() for x in data.values()]
    operands = [x.bfloat16() for x in operands] if bf16 else operands

    def once() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.einsum(case.subscripts, *operands)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    return once


def _told(result: dict[str, Any]) -> str:
    parts = [f"{name} {seconds:.4g} s" for name, seconds in result["seconds"].items()]
    return "; ".join(parts + [f"{name} failed: {why.splitlines()[0]}" for name, why in result["failed"].items()])


def _page(done: dict[str, Any]) -> str:
    """The results as a table."""
    lines = [
        "# einturnip bench gpu",
        "",
        "Medians of interleaved runs.",
        "",
        "| case | date | seconds |",
        "|---|---|---|",
    ]
    lines += [f"| {key} | {result['date']} | {_told(result)} |" for key, result in done.items()]
    return "\n".join(lines) + "\n"
