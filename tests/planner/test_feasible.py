"""Programs that no machine would finish are refused by their operations, before anything is planned."""

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
from einturnip.eingraph.rewrite import contraction_tree

BODIES = (
    "B[i,j] = sum[k] A[i,k] * A[k,j]\noutput B\n",
    "B[i,j,k,l] = A[i,j] + A[k,l]\noutput B\n",
    "s = sum[i,j,k,l] sin(A[i,j] + A[k,l])\noutput s\n",
    "B[i,j] = A[i-1 ? 0, j]\nfor t in 0 .. 3 {\n  B[i,j] = exp(B[i,j])\n}\noutput B\n",
    "b[i: n ^ 2 // 3] = i\noutput b\n",
    "m = max[i,j] A[i,j]\noutput m\n",
)


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


@settings(max_examples=25)
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
