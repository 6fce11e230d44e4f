"""The command line as a user meets it: output, errors in his own words, exit codes."""

import json
import sys

import numpy as np
import pytest

import einturnip as et
from einturnip.cli.main import run
from einturnip.core.errors import SourceError

PRODUCT = """\
dim n = 6
input A : f64[n, k]
input B : f64[k, m]
C[i,j] = A[i,p] * B[p,j]
t = sum[i,j] C[i,j]
output C
output t
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "product.ein").write_text(PRODUCT)
    rng = np.random.default_rng(0)
    np.save("a.npy", rng.integers(-5, 5, (6, 7)).astype(float))
    np.save("b.npy", rng.integers(-5, 5, (7, 4)).astype(float))
    return tmp_path


@pytest.fixture
def command(capsys):
    def call(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


FILES = ("-i", "A=a.npy", "-i", "B=b.npy")


def test_run_writes_files_and_tells_of_the_rest(folder, command):
    code, out, err = command("run", "product.ein", *FILES, "-o", "C=c.npy", "--report", "r.json")
    assert code == 0, err
    expected = np.load("a.npy") @ np.load("b.npy")
    assert (np.load("c.npy") == expected).all()
    assert "C        f64[6, 4]  written to c.npy" in out
    assert f"t        f64  value {expected.sum():g}, checksum " in out
    for word in ("time", "memory", "moved", "busy"):
        assert f"\n{word} " in out
    report = json.loads((folder / "r.json").read_text())
    assert report["wall_seconds"] > 0
    assert report["predicted"]["link_bytes"].keys() == report["link_bytes"].keys()
    assert err == ""


def test_quiet_prints_nothing(folder, command):
    assert command("run", "product.ein", *FILES, "--quiet") == (0, "", "")


def test_random_inputs_and_checksums_are_the_same_each_time(folder, command):
    sizes = ("--dim", "k=30", "--dim", "m=40")
    tallies = []
    for seed in ((), ("--random",), ("--random", "0"), ("--random", "1")):
        code, out, err = command("run", "product.ein", *sizes, *seed)
        tallies.append(out.splitlines()[:1])
        assert code == (0 if seed else 2), err
        if not seed:
            assert "input A (line 2) has no file" in err and "--random" in err
    assert tallies[1] == tallies[2] != tallies[3]


def test_an_output_nobody_keeps_may_be_read_again_by_the_run(folder, command):
    """C is an output and an operand of t: a plan that has no room for it reads it back from where it stored it."""
    (folder / "square.ein").write_text(
        "input A : f64[n, n]\nC[i,j] = A[i,k] * A[k,j]\nD[i,j] = C[i,k] * C[k,j]\noutput C\noutput D\n"
    )
    small = command("run", "square.ein", "--random", "--dim", "n=300", "--arena", "600kB", "-o", "D=d.npy")
    assert small[0] == 0, small[2]
    large = command("run", "square.ein", "--random", "--dim", "n=300", "-o", "D=e.npy")
    assert large[0] == 0, large[2]
    assert np.allclose(np.load("d.npy"), np.load("e.npy"))
    assert {p.name for p in folder.glob("*.npy")} == {"a.npy", "b.npy", "d.npy", "e.npy"}


def test_check_shows_every_tensor_and_what_sizes_are_known(folder, command):
    assert command("check", "product.ein") == (
        0,
        "line 2  input   A[n, k]  f64[6, k]\n"
        "line 3  input   B[k, m]  f64[k, m]\n"
        "line 4  output  C[i, j]  f64[6, m]\n"
        "line 5  output  t        f64\n",
        "",
    )
    code, out, _ = command("check", "product.ein", *FILES)
    assert code == 0 and "C[i, j]  f64[6, 4]" in out
    code, out, _ = command("check", "product.ein", "-i", "B=b.npy")
    assert code == 0 and "C[i, j]  f64[6, 4]" in out
    code, out, err = command("check", "product.ein", "-i", "A=b.npy")
    assert code == 2 and out == "" and "b.npy" in err and "size 'n' is 6" in err


def test_plan_needs_sizes_not_data(folder, command):
    code, out, err = command("plan", "product.ein", "--dim", "k=1000", "--dim", "m=1000", "--arena", "8MiB")
    assert code == 0, err
    assert "output C" in out and "f64[6, 1000]" in out
    code, _, err = command("plan", "product.ein", "--dim", "k=1000")
    assert code == 2 and "size 'm' has no value" in err


@pytest.mark.parametrize("floor", ["einsum", "decomposition", "relation", "taskgraph", "memgraph"])
def test_plans_are_printed_floor_by_floor(folder, command, floor):
    arguments = ("plan", "product.ein", *FILES, "-o", "C=c.npy", "--arena", "64kB", "--emit", floor)
    code, out, err = command(*arguments, "--format", "json")
    assert code == 0, err
    plan = json.loads(out)
    assert plan["schema"] == f"einturnip.{floor}/1"
    assert plan["program"] == "product.ein"
    assert plan["budget"] == {"memory": None, "compute": 64_000, "host": None, "disk": None}
    assert plan["predicted"]["flops"] > 0
    items = plan[{"taskgraph": "tasks", "memgraph": "ops"}.get(floor, "nodes")]
    assert [item["id"] for item in items] == list(range(len(items)))
    code, out, err = command(*arguments)
    assert code == 0, err
    assert len(out.splitlines()) >= len(items)


def test_a_memory_graph_says_where_tiles_lie_in_files(folder, command):
    out = command(
        "plan", "product.ein", *FILES, "-o", "C=c.npy", "--arena", "64kB", "--emit", "memgraph", "--format", "json"
    )
    plan = json.loads(out[1])
    kinds = {tier["id"]: tier["kind"] for tier in plan["tiers"]}
    assert kinds == {
        "cpu:0": "compute",
        "disk": "store",
        "a.npy": "input",
        "b.npy": "input",
        "c.npy": "output",
        "t": "output",
    }
    loads = [op for op in plan["ops"] if op["kind"] == "load" and op["reads"][0][0] == "a.npy"]
    assert sum(op["reads"][0][2] for op in loads) == 6 * 7 * 8
    assert all(op["reads"][0][1] >= 128 for op in loads)
    stores = [op for op in plan["ops"] if op["kind"] == "store" and op["writes"][0][0] == "c.npy"]
    assert sum(op["writes"][0][2] for op in stores) == 6 * 4 * 8
    assert not (folder / "c.npy").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "prodct.ein"), "there is no program prodct.ein; did you mean 'product.ein'?"),
        (("run", "product.ein", "-i", "AA=a.npy"), "no input 'AA'; did you mean 'A'?"),
        (("run", "product.ein", *FILES, "-o", "D=d.npy"), "no output 'D'; it has C, t"),
        (("run", "product.ein", *FILES, "--dim", "q=3"), "no dim 'q'; it has n, k, m"),
        (("run", "product.ein", *FILES, "--dim", "k=8"), "size 'k' is 8"),
        (("run", "product.ein", "-i", "A=a.npy", "-i", "A=b.npy"), "'A' is given twice"),
        (("run", "product.ein", "-i", "A"), "'A' is not of the form NAME=FILE"),
        (("run", "product.ein", "--dim", "k=many"), "'k=many' is not of the form n=4096"),
        (("run", "product.ein", *FILES, "--memory", "1GiB", "--arena", "1MiB"), "give one of them"),
        (("run", "product.ein", "--memory", "2G"), "write 2GiB or 2GB"),
        (("run", "product.ein", "--device", "abacus"), "'abacus' is not a device"),
        (("run", "product.ein", "--trace", "nowhere/t.json"), "there is no directory nowhere"),
        (("run", "product.ein", *FILES, "--trace", "a.npy"), "--trace a.npy: is the file of input A"),
        (("run", "product.ein", *FILES, "-o", "C=c.npz::c", "--report", "c.npz"), "is the file of output C"),
        (("run", "product.ein", *FILES, "--record", "./product.ein"), "is the file of the program"),
        (("run", "product.ein", *FILES, "--report", "r.json", "--trace", "r.json"), "both write to r.json"),
        (("run", "product.ein", *FILES, "--report", "."), "is a directory"),
        (("run", "product.ein", *FILES, "-o", f"C={300 * 'c'}.npy"), "no file can be put there"),
        (("run", "product.ein", *FILES, "-o", "C=around.zarr"), "no file can be put there"),
        (("run", "product.ein", *FILES, "-o", "C=around.npy"), "no file can be put there"),
        (("run", "product.ein", "-i", "A=gone.npy", "-i", "B=b.npy"), "is a link to away.npy"),
        (("trace", "product.ein"), "product.ein is no recorded run"),
        (("trace", "t.json"), "there is no recorded run t.json"),
        (("run", "product.ein", "--memry", "1GiB"), "--memory"),
        (("run", "product.ein", *FILES, "--policy", "luck"), "luck"),
        (("plan", "product.ein", *FILES, "--format", "dot"), "--format dot needs --emit"),
        (("rnu", "product.ein"), "did you mean 'run'?"),
        (("product.ein",), "einturnip run product.ein"),
        (("check", "broken.ein"), "broken.ein:2:"),
        (("check", "latin.ein"), "not UTF-8"),
        (("check", "."), "cannot be read"),
    ],
)
def test_what_is_wrong_with_program_or_command_line_exits_2_in_the_users_words(folder, command, arguments, words):
    (folder / "broken.ein").write_text("input X : f32[n]\nY[i] = X[i] + Z[i]\noutput Y\n")
    (folder / "latin.ein").write_bytes(b"# caf\xe9\n")
    for link, target in (("around.npy", "around.npy"), ("around.zarr", "around.zarr"), ("gone.npy", "away.npy")):
        (folder / link).symlink_to(target)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    code, out, err = command(*arguments)
    assert code == 2
    assert words in err
    assert out == "" and "Traceback" not in err
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("arguments", [(), ("bench",)])
def test_no_verb_shows_what_there_is(command, arguments):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "") and err.startswith("Usage: ") and "error" not in err.splitlines()[0]
    assert err.count("Usage: ") == 1


@pytest.mark.parametrize("verb", ["plan", "plan --format json", "plan --parts 4", "run", "run --steps 2"])
def test_a_program_without_an_output_is_refused(folder, command, verb):
    (folder / "empty.ein").write_text("")
    (folder / "nothing.ein").write_text("x[i: 4] = i\ny[i] = 2 * x[i]\n")
    name, *options = verb.split()
    code, _, err = command(name, "empty.ein", *options)
    assert code == 2 and "no output" in err
    code, _, err = command(name, "nothing.ein", *options)
    assert code == 2 and err.count("E026") == 1 and "W002" not in err and "help: add: output y" in err
    assert command("check", "empty.ein")[0] == command("check", "nothing.ein")[0] == 0
    with pytest.raises(SourceError, match="E026"):
        et.compile("nothing.ein")()


def test_an_input_of_another_dtype_says_what_to_do(folder, command):
    np.save("a.npy", np.zeros((6, 7), np.float32))
    code, _, err = command("run", "product.ein", *FILES)
    assert code == 2
    assert "product.ein:2:" in err and "f32 in a.npy" in err and "help:" in err


def test_what_does_not_fit_exits_3(folder, command):
    code, _, err = command("run", "product.ein", *FILES, "--memory", "1MiB", "-o", "C=c.npy")
    assert code == 3
    assert "the program needs at least" in err and "1.00 MiB are allowed" in err
    assert not (folder / "c.npy").exists()


def test_a_file_that_is_not_there_exits_2(folder, command):
    code, _, err = command("run", "product.ein", "-i", "A=c.npy", "-i", "B=b.npy")
    assert code == 2 and "c.npy" in err and "no such file" in err


@pytest.mark.parametrize(
    ("dtype", "written", "told"),
    [
        ("f64", "3", "value 3,"),
        ("f32", "-1.5e1", "value -15,"),
        ("i64", "1_000", "value 1000,"),
        ("bool", "true", "value 1,"),
        ("f64", "inf", "value inf,"),
        ("f64", "a.npy", "value 7,"),
    ],
)
def test_a_scalar_input_takes_a_number_or_a_file(folder, command, dtype, written, told):
    (folder / "scalar.ein").write_text(f"input a : {dtype}\nb = a\noutput b\n")
    np.save("a.npy", np.float64(7))
    code, out, err = command("run", "scalar.ein", "-i", f"a={written}")
    assert code == 0 and told in out, err
    for verb in ("check", "plan"):
        assert command(verb, "scalar.ein", "-i", f"a={written}")[0] == 0


@pytest.mark.parametrize(
    ("dtype", "written", "words"),
    [
        ("i8", "1000", "input a is i8, which cannot hold the number 1000"),
        ("i64", "1.5", "input a is i64, which cannot hold the number 1.5"),
        ("f64", "2j", "input a is f64, which cannot hold the number 2j"),
        ("f64", "seven", "input a is a scalar, and 'seven' is neither a number nor a file. help: -i a=3.5"),
        ("f64", "seven.npy", "seven.npy: there is no such file"),
        ("f32", "1e300", "input a is f32, which cannot hold the number 1e+300"),
    ],
)
def test_a_scalar_that_is_none_is_refused(folder, command, dtype, written, words):
    (folder / "scalar.ein").write_text(f"input a : {dtype}\nb = a\noutput b\n")
    code, _, err = command("run", "scalar.ein", "-i", f"a={written}")
    assert code == 2 and words in err


def test_an_empty_file_is_called_empty(folder, command):
    (folder / "a.npy").write_bytes(b"")
    code, _, err = command("run", "product.ein", *FILES)
    assert code == 2 and "a.npy: is empty, it has 0 bytes" in err


def test_numeric_trouble_is_a_warning_that_names_its_statement(folder, command):
    (folder / "log.ein").write_text("input x : f64[n]\ny[i] = log(x[i])\noutput y\n")
    np.save("x.npy", np.array([1.0, -1.0, 0.0]))
    code, out, err = command("run", "log.ein", "-i", "x=x.npy")
    assert code == 0
    assert "warning: line 2 made nan in one tile (first y[1] = nan, from x[1] = -1.0): y[i] = log(x[i])" in err
    assert "1 nan" in out


def test_a_bug_of_ours_shows_no_traceback_unless_asked(folder, command, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("einturnip.api.inputs.compile_path", broken)
    code, _, err = command("check", "product.ein")
    assert code == 1 and "internal error: ZeroDivisionError: oh" in err and "report" in err and "Traceback" not in err
    assert "Traceback" in command("check", "product.ein", "--debug")[2]


def test_the_language_server_says_what_it_needs(command, monkeypatch):
    monkeypatch.delitem(sys.modules, "einturnip.lsp.server", raising=False)
    monkeypatch.setitem(sys.modules, "pygls", None)
    code, _, err = command("lsp")
    assert code == 2 and "help: pip install 'einturnip[lsp]'" in err


def test_help_of_every_verb(command):
    code, out, _ = command("--help")
    assert code == 0
    for verb in ("run", "check", "plan", "trace", "fmt", "lsp", "doctor"):
        assert f"  {verb} " in out
        assert command(verb, "--help")[0] == 0
    assert command("--version")[1].startswith("einturnip, version ")


PIECES = """\
import std.nn
import "parts/layers.ein"
input X : f64[s, d] = "x.npy"
input W : f64[2, d, d]
for l in 0 .. 2 {
  X[a, b] = dense(X[a, c], W[l, c, b])
}
P[i, j] = softmax(X[i, j])
output X
output P
"""


@pytest.fixture
def pieces(folder):
    """A program in a folder of its own, with an import and a default file that are relative to it."""
    (folder / "net/parts").mkdir(parents=True)
    (folder / "net/net.ein").write_text(PIECES)
    (folder / "net/parts/layers.ein").write_text(
        'import "deeper/more.ein"\nfn dense(A[i, k], B[k, j]) = half(sum[k] A[i, k] * B[k, j])\n'
    )
    (folder / "net/parts/deeper").mkdir()
    (folder / "net/parts/deeper/more.ein").write_text("fn half(x) = x / 2\n")
    np.save(folder / "net/x.npy", np.arange(6.0).reshape(2, 3))
    np.save("w.npy", np.stack([np.eye(3) * 2, np.ones((3, 3))]))
    return folder


def test_imports_and_default_files_are_relative_to_the_program(pieces, command):
    code, out, err = command("run", "net/net.ein", "-i", "W=w.npy", "-o", "X=x.npy", "-o", "P=p.npy")
    assert code == 0, err
    expected = np.arange(6.0).reshape(2, 3) @ np.ones((3, 3)) / 2
    assert (np.load("x.npy") == expected).all() and np.allclose(np.load("p.npy"), 1 / 3)
    assert command("plan", "net/net.ein", "--dim", "d=3")[0] == 0
    code, out, err = command("check", "net/net.ein")
    assert code == 0, err
    assert out.splitlines() == [
        "line 3  input   X[s, d]     f64[2, 3]",
        "line 4  input   W[2, d, d]  f64[2, 3, 3]",
        "line 6  output  X[a, b]     f64[2, 3]     for each l",
        "line 8  output  P[i, j]     f64[2, 3]",
    ]
    code, every, err = command("check", "net/net.ein", "--all")
    assert code == 0 and set(out.splitlines()) != set(every.splitlines()) and "dense" in every


def test_an_import_that_is_not_there_is_named(pieces, command):
    (pieces / "net/parts/layers.ein").unlink()
    code, out, err = command("check", "net/net.ein")
    assert code == 2 and out == "" and "net/net.ein:2:" in err and "parts/layers.ein" in err


def test_policies_are_listed(folder, command):
    from einturnip.cli.options import POLICIES as listed
    from einturnip.runtime.scheduler.policies import POLICIES

    assert sorted(POLICIES) == sorted(listed)
    code, out, _ = command("run", "--help")
    assert code == 0 and all(name in out for name in POLICIES)
    code, _, err = command("run", "product.ein", *FILES, "--policy", "fifo")
    assert code == 2 and all(name in err for name in POLICIES)


@pytest.mark.parametrize("content", [None, b"", b"not an array", b"\x93NUMPY\x01\x00"])
def test_a_bad_input_file_is_a_wrong_command_line(folder, command, content):
    (folder / "a.npy").unlink()
    if content is not None:
        (folder / "a.npy").write_bytes(content)
    code, _, err = command("run", "product.ein", *FILES)
    assert code == 2 and "a.npy" in err


def test_bytes_of_no_file_are_not_listed(folder, command):
    code, out, err = command("run", "product.ein", "--random", "--dim", "m=6", "--dim", "k=7")
    assert code == 0, err
    moved = next(line for line in out.splitlines() if line.startswith("moved"))
    assert "0 B" not in moved and "lower bound" not in moved
    assert " of planning" in out
