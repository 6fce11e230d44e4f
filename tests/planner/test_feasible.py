"""Programs that nobody would wait for, or that cannot be stored, are refused before planning."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import einturnip as et
from einturnip.cli.main import run
from einturnip.core.errors import CapacityError
from einturnip.core.units import format_size
from einturnip.devices.stored import machine_here
from einturnip.eingraph.rewrite import contraction_tree
from einturnip.eingraph.types import EinGraph
from einturnip.planner import feasible, variants
from einturnip.planner.request import Options
from einturnip.tuning.search import MAX_RUN_SECONDS
from tests.drawn import examples

BODIES = (
    "B[i,j] = sum[k] A[i,k] * A[k,j]\noutput B\n",
    "B[i,j,k,l] = A[i,j] + A[k,l]\noutput B\n",
    "s = sum[i,j,k,l] sin(A[i,j] + A[k,l])\noutput s\n",
    "B[i,j] = A[i-1 ? 0, j]\nfor t in 0 .. 3 {\n  B[i,j] = exp(B[i,j])\n}\noutput B\n",
    "b[i: n ^ 2 // 3] = i\noutput b\n",
    "m = max[i,j] A[i,j]\noutput m\n",
)


def bound(text: str, **dims: int) -> EinGraph:
    """A program with sizes for its labels."""
    return et.compile(text).plan(dims=dims, arena="1MiB")._job.bound


def test_a_network_of_many_operands_is_refused_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    reorder = contraction_tree._Tree.reorder
    monkeypatch.setattr(contraction_tree._Tree, "reorder", lambda *a: tries.append(1) or reorder(*a))
    draw, labels = random.Random(0), [list[int]() for _ in range(300)]
    for label in range(900):
        for place in draw.sample(range(300), 2):
            labels[place].append(label)
    # Views of one element: operands of a few labels each, of which the intermediates have hundreds.
    arguments = [part for held in labels if held for part in (np.broadcast_to(np.float32(1), (8,) * len(held)), held)]
    with pytest.raises(CapacityError, match="operations .* years .* largest intermediate") as refused:
        et.einsum(*arguments, [], memory="1GiB")
    assert "--memory" not in str(refused.value) and refused.value.needed == 0
    assert not tries


@settings(max_examples=examples(25))
@given(st.sampled_from(BODIES), st.integers(33, 61), st.integers(-3, 3), st.sampled_from(["f32", "f64", "i8", "c128"]))
def test_astronomic_sizes_end_in_words(body: str, power: int, offset: int, dtype: str) -> None:
    """No verb ends in a traceback, an internal error, or JSON that others cannot read."""
    import contextlib
    import io
    import tempfile

    n = 2**power + offset
    if dtype == "c128" and "max" in body:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.ein"
        path.write_text(f"input A : {dtype}[n, n]\n{body}")
        for verb in (["check"], ["plan", "--no-budgets"], ["plan", "--format", "json", "--no-budgets"]):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run([verb[0], str(path), "--dim", f"n={n}", *verb[1:]])
            assert code in (0, 2, 3), err.getvalue()
            assert "nternal" not in err.getvalue() and "Error" not in err.getvalue()
            if code == 0 and "json" in verb:
                json.loads(out.getvalue(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(1 << 50, "1.00 PiB"), (3 << 60, "3.00 EiB"), (10**30, "1.00e+30 bytes"), (10**400, "1.00e+400 bytes")],
)
def test_huge_sizes_are_written(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


def test_all_pairs_of_labels_are_refused_without_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(variants, "successive_tilings", lambda *_: made.append(1))
    pairs = list(itertools.combinations(range(14), 2))
    matrix = np.broadcast_to(np.float64(1), (16, 16))
    with pytest.raises(CapacityError, match=r"7\.21e\+16 operations .* days .* has 128 TiB.*force=True") as refused:
        et.einsum(*itertools.chain.from_iterable((matrix, pair) for pair in pairs), [])
    assert len(str(refused.value)) < 500 and refused.value.needed == 0
    assert not made


def test_what_takes_longer_than_the_bound_runs_if_it_is_forced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = np.arange(64.0).reshape(8, 8)
    (tmp_path / "p.ein").write_text("input A : f64[n, n]\nB[i,j] = sum[k] A[i,k] * A[k,j]\noutput B\n")
    np.save(tmp_path / "a.npy", a)
    command = ["run", str(tmp_path / "p.ein"), "-i", f"A={tmp_path / 'a.npy'}", "--quiet"]
    program = et.compile(tmp_path / "p.ein")
    for seconds in (1e-12, 1e-9):  # beyond the fastest rate there is, and beyond the kernels' predicted time
        monkeypatch.setattr(feasible, "MAX_RUN_SECONDS", seconds)
        said = r"512 operations .* at least .* largest intermediate has 512 B; .*line 2, 'B\[i,j\] = sum"
        with pytest.raises(CapacityError, match=said):
            program(A=a)
        with pytest.raises(CapacityError, match="'result"):
            et.einsum("ij,jk->ik", a, a)
        assert run(command) == 3
        assert "--force" in capsys.readouterr().err
    assert np.array_equal(program(A=a, force=True)["B"], a @ a)
    assert np.array_equal(et.einsum("ij,jk->ik", a, a, force=True), a @ a)
    assert run([*command, "--force"]) == 0


def test_a_plan_that_moves_bytes_for_longer_than_the_bound_is_refused() -> None:
    graph = bound("input A : f32[n, n]\nB[i,j] = A[j,i]\noutput B\n", n=100)
    feasible.require_planned_in_time(graph, MAX_RUN_SECONDS, Options())
    feasible.require_planned_in_time(graph, 1e9, Options(force=True))
    with pytest.raises(CapacityError, match="10,000 operations .* about 31.7 years .*line 2"):
        feasible.require_planned_in_time(graph, 1e9, Options())


def test_an_intermediate_beyond_memory_and_disk_is_refused_unless_it_can_be_streamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    squared = "input A : f32[n, n]\nB[i,j] = sum[k] A[i,k] * A[k,j]\n"
    machine = machine_here(2)
    twice = bound(squared + "C[i,j] = sum[k] B[i,k] * A[k,j]\nD[i,j] = sum[k] A[i,k] * B[k,j]\noutput C, D\n", n=100)
    once = bound(squared + "C[i,j] = sum[k] B[i,k] * A[k,j]\noutput C\n", n=100)
    monkeypatch.setattr(feasible, "total_memory", lambda: 20_000)
    monkeypatch.setattr(feasible, "free_nbytes", lambda _: 19_999)
    for graph in (twice, once):
        with monkeypatch.context() as patch:
            patch.setattr(feasible, "free_nbytes", lambda _: 20_000)
            feasible.require_storable(graph, machine, Options())
    feasible.require_storable(once, machine, Options())
    feasible.require_storable(twice, machine, Options(force=True))
    refusal = r"3.00e\+6 operations .* has 39\.1 KiB; memory and disk .* 39\.1 KiB; it is made at line 2"
    with pytest.raises(CapacityError, match=refusal):
        feasible.require_storable(twice, machine, Options())
    monkeypatch.setattr(feasible, "MAX_TILED_NBYTES", 39_999)
    with pytest.raises(CapacityError, match="it is made at line 2"):
        feasible.require_storable(once, machine, Options())
