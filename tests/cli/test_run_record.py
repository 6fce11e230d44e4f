"""``--record`` and ``--replay``: the same schedule once more, or a reason why not."""

import json

import numpy as np
import pytest

from einturnip.cli.main import run

PROGRAM = "input A : f32[n, k]\ninput B : f32[k, m]\nC[i,j] = A[i,p] * B[p,j]\noutput C\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.ein").write_text(PROGRAM)
    (tmp_path / "q.ein").write_text("input A : f32[n, k]\nC[i] = sum[j] A[i,j]\noutput C\n")
    rng = np.random.default_rng(0)
    np.save("a.npy", rng.standard_normal((300, 200)).astype(np.float32))
    np.save("b.npy", rng.standard_normal((200, 260)).astype(np.float32))
    return tmp_path


FILES = ("-i", "A=a.npy", "-i", "B=b.npy", "-q")


@pytest.mark.parametrize(
    "budget", [("--arena", "200KiB"), ("--memory", "1GiB"), ("--arena", "200KiB", "--reproducible")]
)
def test_a_run_is_repeated_launch_by_launch(folder, budget):
    if "--reproducible" in budget:
        budget = ("--arena", "2MiB", "--reproducible")
    first = run(["run", "p.ein", *FILES, *budget, "-o", "C=c1.npy", "--record", "r1.json"])
    again = run(["run", "p.ein", *FILES, "-o", "C=c2.npy", "--replay", "r1.json", "--record", "r2.json"])
    assert first == again == 0
    one, two = (json.loads((folder / f).read_text()) for f in ("r1.json", "r2.json"))
    assert one == two and len(one["events"]) == 2 * one["ops"]
    assert (folder / "c1.npy").read_bytes() == (folder / "c2.npy").read_bytes()


CHAIN = """
input A : f64[a, b], B : f64[b, c], C : f64[c, d]
AB[i,k] = A[i,j] * B[j,k]
R[i,l] = AB[i,k] * C[k,l]
output R
"""
SUMS = CHAIN.replace("output R", "T[i] = sum[l] exp(R[i,l])\noutput R, T")


@pytest.mark.parametrize("program", [CHAIN, SUMS])
@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        (("--device", "sim:1", "--arena", "64KiB"), {}),
        (("--device", "sim:1,2", "--arena", "64KiB"), {}),
        (("--device", "sim:1,2", "--arena", "64KiB,48KiB", "--rates", "2,1", "--workers", "2"), {"rates": [2, 1]}),
        (("--device", "sim:0,1,2", "--arena", "64KiB", "--link", "1GB/s,2ms"), {"link": [1e9, 2e-3]}),
        (("--device", "sim:1,2", "--arena", "1MiB", "--reproducible"), {"reproducible": True}),
    ],
)
def test_a_recording_is_replayed_on_the_same_devices(folder, capsys, program, options, recorded):
    (folder / "s.ein").write_text(program)
    sizes = [f"--dim={name}" for name in ("a=90", "b=70", "c=110", "d=60")]
    arguments = ["run", "s.ein", *sizes, "--random", "-q"]
    assert run([*arguments, *options, "-o", "R=c1.npy", "--record", "r1.json"]) == 0
    assert run([*arguments, "-o", "R=c2.npy", "--replay", "r1.json", "--record", "r2.json"]) == 0
    one, two = (json.loads((folder / f).read_text()) for f in ("r1.json", "r2.json"))
    expected = {"device": options[1]} | recorded
    assert {name: one[name] for name in expected} == expected
    assert one == two
    assert (folder / "c1.npy").read_bytes() == (folder / "c2.npy").read_bytes()
    assert run([*arguments, "--device", "sim:3", "--replay", "r1.json"]) == 2
    assert f"the recorded run had --device {options[1]}" in capsys.readouterr().err


def test_a_recorded_run_fits_where_what_it_uses_does(folder):
    assert run(["run", "p.ein", *FILES, "--memory", "99TiB", "--record", "r.json"]) == 0
    assert run(["run", "p.ein", *FILES, "--memory", "1GiB", "--replay", "r.json"]) == 0
    assert run(["run", "p.ein", *FILES, "--memory", "1MiB", "--replay", "r.json"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("q.ein", "-i", "A=a.npy", "--replay", "r.json"), "r.json (of p.ein) is a recording of another plan"),
        (("p.ein", *FILES, "--replay", "r.json", "--arena", "1MiB"), "leave out --arena"),
        (("p.ein", *FILES, "--replay", "r.json", "--workers", "7"), "the recorded run had"),
        (("p.ein", *FILES, "--replay", "none.json"), "there is no recording none.json"),
        (("p.ein", *FILES, "--replay", "p.ein"), "p.ein is no recording"),
        (("p.ein", *FILES, "--record", "nowhere/r.json"), "there is no directory nowhere"),
    ],
)
def test_what_cannot_be_replayed_says_why(folder, capsys, arguments, message):
    assert run(["run", "p.ein", *FILES, "--arena", "200KiB", "--workers", "2", "--record", "r.json"]) == 0
    assert run(["run", *arguments]) == 2
    assert message in capsys.readouterr().err


FIELDS = (
    "program",
    "device",
    "link",
    "rates",
    "extra",
    "workers",
    "reproducible",
    "exact",
    "limit",
    "arena",
    "fused",
    "compiled",
    "tiles",
    "plan",
    "ops",
)
WRONG = (1.5, "1", [1.5], {"a": 1}, -1, [[1]], 10**30, [10**30], [True], None, True)


@pytest.mark.parametrize("field", [*FIELDS, "events"])
def test_a_recording_with_a_wrong_value_names_the_field(folder, capsys, field):
    assert run(["run", "p.ein", *FILES, "--record", "r.json"]) == 0
    right = json.loads((folder / "r.json").read_text())
    refused = 0
    for wrong in WRONG:
        if type(wrong) is type(right[field]) and not isinstance(wrong, int | list) or wrong == right[field]:
            continue
        if (
            field in ("limit", "link")
            and wrong is None
            or field == "rates"
            and wrong in ([1.5], [10**30])
            or field in ("reproducible", "exact", "fused", "compiled")
            and wrong is True
        ):
            continue
        (folder / "w.json").write_text(json.dumps(right | {field: wrong}))
        assert run(["run", "p.ein", *FILES, "--replay", "w.json"]) == 2, wrong
        err = capsys.readouterr().err
        assert f"w.json: '{field}' must be" in err and "internal" not in err
        refused += 1
    assert refused >= 6
    (folder / "w.json").write_text(json.dumps({name: value for name, value in right.items() if name != field}))
    assert run(["run", "p.ein", *FILES, "--replay", "w.json"]) == 2
    assert f"w.json: the recording lacks '{field}'" in capsys.readouterr().err


def test_a_recording_of_tiny_tiles_is_refused_before_they_are_made(folder, capsys):
    assert run(["run", "p.ein", *FILES, "--record", "r.json"]) == 0
    told = json.loads((folder / "r.json").read_text())
    (folder / "w.json").write_text(json.dumps(told | {"tiles": [1] * len(told["tiles"])}))
    assert run(["run", "p.ein", *FILES, "--replay", "w.json"]) == 2
    assert "15,600,000 kernel calls here" in capsys.readouterr().err
