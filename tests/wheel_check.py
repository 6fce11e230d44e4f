"""Run by ``make wheel`` from an empty folder with the installed wheel first on the path: wheel_check.py CHECKOUT."""

import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import einturnip as et

checkout = Path(sys.argv[1]).resolve()
package = Path(et.__file__).resolve().parent
assert checkout / "einturnip" != package, f"the checkout was imported, not the wheel: {package}"
assert not list(Path().iterdir()), "the folder must be empty, so that nothing is found by accident"
for data in ("grammar", "py.typed"):
    assert (package / data).exists(), f"the wheel lacks {data}"
installed = {path.parts[0] for path in distribution("einturnip").files or ()}
assert {name for name in installed if not name.endswith(".dist-info")} <= {"einturnip", "..", "bin"}, installed
assert not any(find_spec(name) for name in ("harness", "offload_policies")), "benchmarks and studies are installed"

a = np.arange(6.0).reshape(2, 3)
assert (et.einsum("ij,kj->ik", a, a) == a @ a.T).all()

Path("double.ein").write_text("input X : f64[n, m]\nY[i,j] = 2 * X[i,j]\noutput Y\n")
np.save("x.npy", a)
command = [sys.executable, "-P", "-m", "einturnip", "run", "double.ein", "-i", "X=x.npy", "-o", "Y=y.npy", "--quiet"]
subprocess.run(command, check=True)
assert (np.load("y.npy") == 2 * a).all()

bench = [sys.executable, "-P", "-m", "einturnip", "bench", "host", "--small"]
ended = subprocess.run(bench, capture_output=True, text=True)
assert ended.returncode == 2 and "docs/benchmarks of its source code" in ended.stderr, ended.stderr
print(f"the wheel works from an empty folder: {package}")
