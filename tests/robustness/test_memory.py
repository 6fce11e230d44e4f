"""The budget is kept as others measure it: resident memory, with the pages of files that are left in the cache."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import einturnip as et
from einturnip.core.units import parse_size
from einturnip.storage.io.unpublished_file import default_directory
from tests.robustness.measuring import cached_nbytes, evict, measured, refused
from tests.robustness.programs import ATTENTION, ENVIRONMENT, GEMM, ROOT, SOFTMAX

# A call from Python, whose inputs stand already: how much higher the most that was resident is than what was before.
CALLED = """
import numpy as np
import einturnip as et
def status(field):
    return int(open("/proc/self/status").read().partition(field)[2].split()[0])
A, B, C, D = (np.random.default_rng(k).random((3000, 3000), np.float32) for k in range(4))
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS:")
trace = et.einsum("ab,bc,cd,da->", A, B, C, D, memory="60MiB", workers=1)
print(status("VmHWM:") - before)
assert np.isclose(trace, ((A @ B) * (C @ D).T).sum(), rtol=1e-4)
"""


def is_memory(path: Path) -> bool:
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True).stdout.strip()
    return kind in ("tmpfs", "ramfs")


def usable_folder() -> str:
    """A folder for temporary files on a disk with a page cache."""
    if is_memory(Path(default_directory())):
        pytest.skip("every temporary directory here is in memory")
    return default_directory()


@pytest.fixture
def folder():
    """A folder on a disk with a page cache."""
    with tempfile.TemporaryDirectory(dir=usable_folder()) as name:
        yield Path(name)


def saved(path: Path, array) -> None:
    """An .npy file none of which is in the page cache."""
    np.save(path, array)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    assert cached_nbytes(path) == 0


def peak(folder: Path, text: str, memory: str, *arguments: str) -> int:
    """Run a program; the peak of its processes, and the pages of the folder's files that it left in the cache."""
    (folder / "p.ein").write_text(text)
    ran = measured(folder, memory, *arguments)
    assert ran.code == 0, ran.error
    return ran.peak


rng = np.random.default_rng(0)


def random(*shape: int):
    return rng.random(shape, np.float32)


@pytest.mark.parametrize("memory", ["96MiB", "160MiB"])
def test_a_product(folder, memory):
    A, B = random(3000, 3000), random(3000, 3000)
    saved(folder / "a.npy", A)
    saved(folder / "b.npy", B)
    assert peak(folder, GEMM, memory, "-i", "A=a.npy", "-i", "B=b.npy", "-o", "C=c.npy") <= parse_size(memory)
    C = np.load(folder / "c.npy", mmap_mode="r")
    assert np.allclose(C[::500], A[::500] @ B, rtol=1e-4)


def test_softmax(folder):
    X = random(4000, 3000)
    saved(folder / "x.npy", X)
    assert peak(folder, SOFTMAX, "80MiB", "-i", "X=x.npy", "-o", "Y=y.npy") <= parse_size("80MiB")
    rows = np.exp(X[::500].astype(np.float64))
    assert np.allclose(np.load(folder / "y.npy", mmap_mode="r")[::500], rows / rows.sum(1, keepdims=True), rtol=1e-4)


def test_attention(folder):
    tensors = {name: random(2, 1500, 64) for name in "QKV"}
    for name, array in tensors.items():
        saved(folder / f"{name}.npy", array)
    given = [word for name in tensors for word in ("-i", f"{name}={name}.npy")]
    assert peak(folder, ATTENTION, "80MiB", *given, "-o", "O=o.npy") <= parse_size("80MiB")
    Q, K, V = (tensors[name].astype(np.float64) for name in "QKV")
    row = 700
    scores = np.exp(np.einsum("hd,htd->ht", Q[:, row], K[:, : row + 1]) / 8)
    expected = np.einsum("ht,htd->hd", scores / scores.sum(1, keepdims=True), V[:, : row + 1])
    assert np.allclose(np.load(folder / "o.npy")[:, row], expected, rtol=1e-4)


def test_a_call_from_python_adds_no_more_than_it_may():
    """Modules that the first use of einturnip loads are part of it."""
    done = subprocess.run([sys.executable, "-c", CALLED], env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) << 10 <= parse_size("60MiB")


def test_python_allocates_little_while_ops_run(monkeypatch):
    """During a run Python's heap holds some hundred bytes an op, and no tiles."""
    import tracemalloc

    from einturnip import compiler

    A = random(600, 600)
    plan = et.compile(GEMM).plan(A=A, B=A, arena="512KiB", out={"C": np.empty((600, 600), np.float32)})
    plan.run()  # kernels are compiled and kept
    peaks = []
    run_ops = compiler.run_ops

    def traced(graph, *arguments):
        tracemalloc.start()
        try:
            trace = run_ops(graph, *arguments)
            peaks.append((tracemalloc.get_traced_memory()[1], len(graph)))
            return trace
        finally:
            tracemalloc.stop()

    monkeypatch.setattr(compiler, "run_ops", traced)
    plan.run()
    ((peak, n_ops),) = peaks
    assert n_ops > 500
    assert peak < 128 * 1024 + 300 * n_ops


TWICE = "input A : f32[n, m]\nB[i, j] = 2 * A[i, j]\noutput B\n"


@pytest.mark.parametrize("read", ["npy", "h5"])
def test_a_refusal_loads_no_package_that_would_exceed_the_limit(folder, read):
    """The HDF5 library takes more than the limit leaves, and is in the account before it is loaded."""
    np.save(folder / "A.npy", np.ones((700, 700), np.float32))
    with h5py.File(folder / "A.h5", "w") as file:
        file["A"] = np.ones((700, 700), np.float32)
    (folder / "p.ein").write_text(TWICE)
    words = ["-i", {"npy": "A=A.npy", "h5": "A=A.h5::A"}[read], "-o", "B=B.h5"]
    named = refused(folder, parse_size("56MiB"), *words).least
    evict(folder)
    ran = measured(folder, named, *words)
    assert ran.code == 0 and ran.peak <= named, (named, ran)


SMOOTHED = """
input A : f32[n, m]
X[i, j] = A[i, j]
for t in 0 .. 30 {
  v[i] = sum[j] X[i, j]
  X[i, j] = X[i, j] * 0.5 + v[i] * 0.001
}
output X
"""


@pytest.mark.parametrize("limit", [20, 44, 47, 50, 53])
def test_a_refusal_stays_within_its_limit(folder, limit):
    """Even if Python and its libraries take more: then they are not loaded."""
    np.save(folder / "A.npy", np.ones((700, 700), np.float32))
    (folder / "p.ein").write_text(SMOOTHED)
    evict(folder)
    found = measured(folder, limit << 20, "-i", "A=A.npy", "-o", "X=X.npy")
    assert found.code == 3 and found.peak <= limit << 20, found


@pytest.mark.parametrize("limit", [46, 48, 50])
def test_a_refusal_of_a_while_loop_stays_within_its_limit(folder, limit):
    """The modules that read and plan its text are loaded only as far as the limit allows."""
    (folder / "p.ein").write_text((ROOT / "docs/examples/linear_algebra/conjugate_gradient.ein").read_text())
    np.save(folder / "A.npy", np.eye(1500))
    np.save(folder / "b.npy", np.ones(1500))
    evict(folder)
    found = measured(folder, limit << 20, "-i", "A=A.npy", "-i", "b=b.npy", "--dim", "steps=30")
    assert found.code == 3 and found.peak <= limit << 20, found


STATE = "input u : f32[n, n]\nstate A : f32[n, n]\nA[i, j] <- A[i, j] + u[i, j]\n"
LINE = "import sys; from einturnip.cli.main import run; code = run({}); print(code, 'h5py' in sys.modules)"
CALL = """
import sys
import einturnip as et
from einturnip.core.errors import CapacityError
try:
    {}
except CapacityError as error:
    print(3, "h5py" in sys.modules, file=sys.stdout)
    print(error, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "program",
    [
        LINE.format(["run", "p.ein", "-i", "A=A.h5::A", "--memory", "56MiB"]),
        LINE.format(["run", "p.ein", "q.ein", "-i", "p.A=A.h5::A", "-i", "q.A=A.npy", "--memory", "56MiB"]),
        LINE.format(["run", "s.ein", "-i", "A=A.npy", "-i", "u=A.h5::A", "--steps", "2", "--memory", "56MiB"]),
        LINE.format(["run", "s.ein", "-i", "A=A.npy", "--feed", "u=F.h5::F", "--steps", "2", "--memory", "56MiB"]),
        LINE.format(["plan", "p.ein", "-i", "A=A.h5::A", "--memory", "56MiB"]),
        CALL.format("et.compile('p.ein')(A='A.h5::A', memory='40MiB')"),
        CALL.format("et.compile('p.ein').session(A='A.h5::A', memory='40MiB')"),
        CALL.format("et.compile('s.ein').session(A='A.npy', memory='40MiB').step(u='A.h5::A')"),
    ],
    ids=["run", "several", "steps", "feed", "plan", "call", "session", "step"],
)
def test_every_way_to_read_a_file_counts_its_package_first(folder, program):
    array = np.ones((300, 300), np.float32)
    np.save(folder / "A.npy", array)
    for name, value in (("A", array), ("F", np.stack([array, array]))):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file[name] = value
    for name, text in (("p", TWICE), ("q", TWICE), ("s", STATE)):
        (folder / f"{name}.ein").write_text(text)
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["3", "False"], found
    assert "the package h5py, which its files need, takes 15.0 MiB" in found.stderr


def test_programs_planned_together_count_the_packages_for_their_outputs(folder):
    np.save(folder / "A.npy", np.ones((300, 300), np.float32))
    for name in "pq":
        (folder / f"{name}.ein").write_text(TWICE)
    words = ["q.ein", "-i", "p.A=A.npy", "-i", "q.A=A.npy", "-o", "p.B=B.h5", "-o", "q.B=B.npy"]
    assert refused(folder, parse_size("56MiB"), *words).least > parse_size("56MiB") + (15 << 20)


def test_no_part_of_a_run_imports_masked_arrays(folder):
    """``np.unique`` does, and takes 1.8 MiB for them."""
    np.save(folder / "A.npy", np.ones((30, 30), np.float32))
    (folder / "p.ein").write_text(SMOOTHED)
    line = LINE.format(["run", "p.ein", "-i", "A=A.npy", "-o", "X=X.npy", "--quiet"]).replace("h5py", "numpy.ma")
    environment = ENVIRONMENT | {"EINTURNIP_PLANS": "off"}
    found = subprocess.run([sys.executable, "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
    assert found.stdout.split() == ["0", "False"], found


@pytest.mark.slow
def test_a_gradient_through_a_loop_whose_states_are_larger_than_the_memory(folder):
    """400 states of 1 MiB."""
    x, c = random(1 << 18), random(1 << 18)
    saved(folder / "x.npy", x)
    saved(folder / "c.npy", c)
    text = (
        "input x : f32[n], c : f32[n]\nh[i] = x[i]\nfor t in 0 .. 400 {\n  h[i] = h[i] - 0.01 * h[i]^2 * c[i]\n}\n"
        "loss = sum[i] h[i]\ng[i] = grad(loss, x[i])\noutput g"
    )
    assert peak(folder, text, "160MiB", "-i", "x=x.npy", "-i", "c=c.npy", "-o", "g=g.npy") <= parse_size("160MiB")
    h, g = x[::500].astype(np.float64), 1.0
    for _ in range(400):
        g = g * (1 - 0.02 * h * c[::500])
        h = h - 0.01 * h**2 * c[::500]
    assert np.allclose(np.load(folder / "g.npy")[::500], g, rtol=1e-3)
