"""Damages the caches on disk in drawn ways and runs a program over each: damaged_caches.py FOLDER FIRST LAST.

One process does what all cases share: it imports einturnip and fills the caches. Each case is a copy of them, damaged,
in which a fork of that process compiles and plans a program, loads its machine code and compares its results. Only
the compilers are replaced, by what they made at first. Prints as JSON how cases ended, with those that went wrong.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from einturnip import caches
from einturnip.api import call_cache, plan_cache
from einturnip.api.inputs import compile_path
from einturnip.api.program import Program
from einturnip.cost.machine import Machine
from einturnip.devices import stored
from einturnip.devices.cuda.kind import pass_once
from einturnip.kernels import select
from einturnip.kernels.cuda import cache as cuda_cache
from einturnip.kernels.llvm import code_cache
from einturnip.planner import plan_store
from einturnip.runtime.host import compilation

TEXT = """\
input X : f64[n, m]
input K : i64[n]
M[i] = max[j] X[i,j]
Y[i,j] = (X[i,j] - M[i]) * 2
s[j] = sum[i] abs(Y[i,j])
T[K[i]: 5, j] = sum[i] X[i,j]
output Y, s, T
"""
SECONDS = 30
NOBODY = 65534
RATES = Machine(workers=1, read_bandwidth=1.25e9)
CUDA = "extern __global__ void f() {}"


class Compiler:
    """In the place of NVRTC, which needs no GPU, but a second."""

    version = (13, 0)

    def target(self, capability: int) -> str:
        return f"sm_{capability}"

    def compile(self, source: str, arch: str) -> bytes:
        return b"\x7fELF" + source.encode()


def work(program: Path) -> None:
    """Use every cache, and compare with NumPy."""
    X = np.arange(60_000.0).reshape(300, 200) % 11
    K = np.arange(300) % 5
    made = Program(compile_path(program), program.parent, {})
    result = made(X=X, K=K, workers=1, memory="1GiB")
    Y = (X - X.max(axis=1, keepdims=True)) * 2
    T = np.zeros((5, 200))
    np.add.at(T, K, X)
    assert np.array_equal(result["Y"], Y) and np.array_equal(result["s"], np.abs(Y).sum(axis=0)), "wrong numbers"
    assert np.array_equal(result["T"], T), "wrong numbers"
    assert stored.machine_here(1) in (RATES, Machine(workers=1)), "wrong rates"
    pass_once("0" * 40, lambda: "passed")
    assert cuda_cache.compiled(CUDA, 90, 13) == Compiler().compile(CUDA, "sm_90"), "wrong code for a GPU"


def forget() -> None:
    """As if the process began."""
    code_cache.forget()
    select.forget()
    plan_cache.forget()
    call_cache._calls.clear()
    stored._read.cache_clear()


# --- damages: what happens to the files of a cache, whose folder is given last


def flip(path: Path, draw: random.Random) -> None:
    held = bytearray(path.read_bytes())
    held[draw.randrange(len(held))] ^= 1 << draw.randrange(8)
    path.write_bytes(held)


def truncate(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def zero(path: Path, draw: random.Random) -> None:
    held = bytearray(path.read_bytes())
    begin = draw.randrange(len(held))
    end = draw.randrange(begin, len(held)) + 1
    held[begin:end] = bytes(end - begin)
    path.write_bytes(held)


def garbage(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(draw.choice([0, 1, 95, 96, 97, 5000])))


def longer(path: Path, draw: random.Random) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randrange(1, 5000)))


def other(path: Path, draw: random.Random) -> None:
    """Another entry's bytes."""
    top = next(parent for parent in path.parents if parent.name == "einturnip")
    every = [entry for entry in sorted(top.rglob("*")) if entry.is_file() and entry != path]
    path.write_bytes(draw.choice(every).read_bytes())


def pipe(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path, draw: random.Random) -> None:
    """A link to the entry itself, to nothing, to a file without an end."""
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(draw.choice([aside, path.with_name("nowhere"), Path("/dev/zero")]))


def folder(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()
    if draw.random() < 0.5:
        (path / "file").touch()


def owner(path: Path, draw: random.Random) -> None:
    os.chown(path, NOBODY, NOBODY)


def open_to_all(path: Path, draw: random.Random) -> None:
    path.chmod(draw.choice([0o666, 0o620, 0o602, 0o777]))


FILES: list[Callable[[Path, random.Random], None]] = [flip, truncate, zero, garbage, longer, other]
FILES += [pipe, link, folder, open_to_all, *([owner] if os.geteuid() == 0 else [])]


def damage(top: Path, draw: random.Random) -> str:
    """Damage caches in a drawn way; says how."""
    files = sorted(path for path in top.rglob("*") if path.is_file())
    if draw.random() < 0.1:  # a folder's turn
        where = draw.choice([top, *sorted(path for path in top.rglob("*") if path.is_dir())])
        if os.geteuid() == 0 and draw.random() < 0.5:
            os.chown(where, NOBODY, NOBODY)
            return f"owner of {where.relative_to(top)}"
        if draw.random() < 0.5:
            where.chmod(0o777)
            return f"mode of {where.relative_to(top)}"
        shutil.rmtree(where)
        where.write_bytes(b"in the way")
        return f"file for {where.relative_to(top)}"
    how = draw.choice(FILES)
    chosen = draw.choice([files, [path for path in files if path.suffix == ".o"], [draw.choice(files)]])
    for path in chosen:
        how(path, draw)
    return f"{how.__name__} of {len(chosen)} files, {chosen[0].relative_to(top)} first"


def case(program: Path, whole: Path, copy: Path, seed: int) -> tuple[str, str]:
    """Damage a copy of the caches and run the program over it; gives how that ended, and the damage."""
    shutil.copytree(whole, copy / "einturnip", copy_function=shutil.copy2)
    told = damage(copy / "einturnip", random.Random(seed))
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        os.environ["XDG_CACHE_HOME"] = str(copy)
        try:
            work(program)
            forget()
            work(program)  # over what the first run put there instead
            os._exit(0)
        except AssertionError as error:
            print(f"case {seed}, {told}: {error}", file=sys.stderr)
            os._exit(1)
        except BaseException:
            print(f"case {seed}, {told}", file=sys.stderr)
            traceback.print_exc()
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    shutil.rmtree(copy)
    if code < 0:
        return signal.Signals(-code).name, told
    return ("right", "wrong", "failed")[code], told


def main(top: Path, first: int, last: int) -> None:
    """Run the cases, and print what they came to."""
    os.environ |= {"XDG_CACHE_HOME": str(top), "EINTURNIP_PLANS": "on", "EINTURNIP_CALIBRATION": "on"}
    program = top / "p.ein"
    program.write_text(TEXT)
    compiled, objects = code_cache._compile, {}

    def compile_once(sources: dict[str, str]) -> dict[str, bytes]:
        missing = {key: text for key, text in sources.items() if key not in objects}
        if missing:
            objects.update(compiled(missing))
        return {key: objects[key] for key in sources}

    code_cache._compile = compile_once
    plan_store.WORTH_STORING = compilation.WORTH_LOADING = 0.0
    compilation.START_SECONDS = compilation.COMPILE_SECONDS = -1.0
    cuda_cache.nvrtc = lambda cuda: Compiler()  # type: ignore[assignment]
    stored.store(RATES, "today", "somewhere")
    work(program)
    forget()
    left = {cache.name: len(cache.entries()) for cache in caches.CACHES}
    assert all(left.values()) and left["kernels"] >= 3, left
    ends = defaultdict(list)
    for seed in range(first, last):
        end, told = case(program, top / "einturnip", top / "copy", seed)
        ends[end].append(f"{seed}: {told}")
    print(json.dumps({end: len(cases) if end == "right" else cases for end, cases in ends.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))
