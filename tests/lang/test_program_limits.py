"""Limits on programs: on the files they are read from and on what they expand to."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip.cli.main import run
from einturnip.core.errors import SourceError
from einturnip.core.program_limits import MAX_FILE_NBYTES, MAX_STATEMENTS, MAX_TERMS, MAX_TOKENS
from einturnip.core.regular_files import read_regular
from einturnip.eingraph.build import program
from einturnip.eingraph.build.program import build
from einturnip.lang import compile_text, lexer
from einturnip.lang.elaborate import parameters, syntax_analysis

LOOP = "input x : f64[4]\ny[i] = x[i]\nfor t in 0 .. {rounds} {{\n    y[i] = y[i] + 1\n}}\noutput y\n"


def code_of(text: str) -> str:
    with pytest.raises(SourceError) as refused:
        program = compile_text(text)
        build(program, {}, {})
    return refused.value.diagnostics[0].code


def nested(depth: int) -> str:
    functions = "".join(f"fn g{k}(x[i]) = g{k - 1}(x[i]) * g{k - 1}(x[i])\n" for k in range(1, depth + 1))
    return f"input a : f64[4]\nfn g0(x[i]) = x[i] + 1\n{functions}b[i] = g{depth}(a[i])\noutput b\n"


def test_a_loop_that_expands_too_far_is_named_before_it_is_unrolled() -> None:
    with pytest.raises(SourceError) as refused:
        build(compile_text(LOOP.format(rounds=10**9)), {}, {})
    (problem,) = refused.value.diagnostics
    assert problem.code == "E214" and problem.span.line == 3
    assert "1,000,000,000" in problem.found and f"{MAX_STATEMENTS:,}" in problem.expected


def test_loops_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MAX_STATEMENTS", 1000)
    square = "y = 0\nfor t in 0 .. {n} {{\n  for u in 0 .. {m} {{\n    y = y + 1\n  }}\n}}\noutput y\n"
    assert len(build(compile_text(square.format(n=30, m="30")), {}, {}).nodes) > 900
    assert code_of(square.format(n=40, m="30")) == "E214"
    assert len(build(compile_text(square.format(n=40, m="t")), {}, {}).nodes) > 780  # a triangle
    assert code_of(square.format(n=60, m="t")) == "E214"
    assert code_of("for t in 0 .. 10000 {\n}\ny = 1\noutput y\n") == "E214"


@given(st.integers(1, 12), st.integers(0, 6), st.booleans(), st.booleans())
def test_the_count_is_what_unrolling_makes(n: int, m: int, triangle: bool, second: bool) -> None:
    inner = "y = y + 1\n" * (1 + second)
    stop = "t" if triangle else m
    text = f"y = 0\nfor t in 0 .. {n} {{\n for u in 0 .. {stop} {{\n{inner} }}\n y = 2 * y\n}}\noutput y\n"
    equations = 1 + sum((t if triangle else m) * (1 + second) + 1 for t in range(n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "MAX_STATEMENTS", equations)
        assert len(build(compile_text(text), {}, {}).nodes) == equations
        patch.setattr(program, "MAX_STATEMENTS", equations - 1)
        assert code_of(text) == "E214"


def test_gradients_that_multiply_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MAX_NODES", 200)
    text = "input x : f64[4]\ng[i] = x[i]\n" + "g[i] = grad(sum[j] exp(x[j]) * sin(g[j]) ^ 3, x[i])\n" * 6
    assert code_of(text + "output g\n") == "E214"


def test_calls_are_multiplied_through_before_they_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (syntax_analysis, parameters):
        monkeypatch.setattr(module, "MAX_TERMS", 5000)
    assert compile_text(nested(8)).outputs
    with pytest.raises(SourceError) as refused:
        compile_text(nested(35))
    (problem,) = refused.value.diagnostics
    assert problem.code == "E072" and "'g35' expands to 68,719,476,735 calls" in problem.message
    assert problem.span.line == 38


def test_a_large_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (syntax_analysis, parameters):
        monkeypatch.setattr(module, "MAX_TERMS", 500)
    assert code_of("y = 1 + 2\n" * 200 + "output y\n") == "E072"
    monkeypatch.setattr(lexer, "MAX_TOKENS", 500)
    assert code_of("y = 1 + 2\n" * 200 + "output y\n") == "E013"
    assert MAX_TERMS < MAX_TOKENS


def test_imports_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (syntax_analysis, parameters):
        monkeypatch.setattr(module, "MAX_TERMS", 500)
    (tmp_path / "lib.ein").write_text("".join(f"fn f{k}x(x) = x + {k}\n" for k in range(200)))
    with pytest.raises(SourceError) as refused:
        compile_text('import "lib.ein"\ny = 1\noutput y\n', str(tmp_path / "main.ein"))
    assert [(d.code, d.span.line) for d in refused.value.diagnostics] == [("E072", 1)]


@pytest.fixture
def odd_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.ein")
    Path("folder.ein").mkdir()
    Path("bytes.ein").write_bytes(b"y = 1 # \xff\n")
    Path("device.ein").symlink_to("/dev/zero")
    with open("large.ein", "wb") as file:
        file.truncate(MAX_FILE_NBYTES + 1)
    return tmp_path


ODD = {
    "pipe.ein": "a pipe",
    "folder.ein": "directory",
    "bytes.ein": "UTF-8",
    "device.ein": "a device",
    "large.ein": "16 MiB",
}


@pytest.mark.parametrize("name", ODD)
def test_only_regular_text_files_are_read(name: str, odd_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("main.ein").write_text(f'import "{name}"\ny = 1\noutput y\n')
    assert run(["check", "main.ein"]) == 2
    told = capsys.readouterr().err
    assert "error[E070]" in told and ODD[name] in told and "main.ein:1:8" in told
    for verb in ("check", "run", "plan", "fmt"):
        assert run([verb, name]) == 2
        assert ODD[name] in capsys.readouterr().err


def test_a_file_that_grows_is_not_read_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_regular(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="larger"):
        read_regular(tmp_path / "x", 4)


HOSTILE = {
    "one long line": "y = " + "1 + " * 400_000 + "1\noutput y\n",
    "one long name": "import '" + "a" * 4_000_000 + "'\n",
    "a long string": 'import "' + "a" * 4_000_000 + '"\n',
    "many labels": "y[" + ", ".join(f"a{k}" for k in range(20_000)) + "] = 1\noutput y\n",
    "many faults": "y = zz + 1\n" * 60_000,
    "many names": "".join(f"y{k} = 1\n" for k in range(60_000)) + "output zz\n",
    "open brackets": "y = " + "(" * 1_000_000,
    "blocks": "for t in 0 .. 2 {\n" * 20_000 + "}\n" * 20_000,
    "a huge power": "y[i: 2^(10^9)] = 1\noutput y\n",
    "a huge number": "y = 10^400\noutput y\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_take_little_memory(kind: str, tmp_path: Path) -> None:
    """Checks each in a process with 600 MiB of address space to spare."""
    (tmp_path / "x.ein").write_text(HOSTILE[kind])
    script = (
        "import resource, sys\n"
        "from einturnip.lang.syntax.parser import _automaton\nfrom einturnip.cli.main import run\n"
        "import einturnip.report.signature, einturnip.api.known_sizes\n_automaton()\n"
        "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (taken + (600 << 20),) * 2)\nsys.exit(run(['check', 'x.ein']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "error" in done.stderr, done.stderr[-500:]
    assert len(done.stderr) < 200_000 and "internal" not in done.stderr


def test_a_long_line_is_shown_around_its_fault() -> None:
    with pytest.raises(SourceError) as refused:
        compile_text("y = " + "1 + " * 5_000 + "zz" + " + 1" * 5_000 + "\noutput y\n")
    text = str(refused.value)
    assert len(text) < 2_000
    with pytest.raises(SourceError) as refused:
        compile_text("y = max(" + "1, " * 90 + "zz, " + "1, " * 90 + "2)\noutput y\n")
    line, mark = str(refused.value).splitlines()[3:5]
    assert line[mark.index("^") :].startswith("zz,") and "..." in line


def test_a_program_comes_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib.ein").write_text("fn twice(x[i]) = 2 * x[i]\n")
    text = 'import "lib.ein"\ninput x : f64[4]\ny[i] = twice(x[i])\noutput y\n'
    for words in (["check", "-"], ["run", "-", "--random"], ["plan", "-"], ["fmt", "-"], ["plan", "-", "--parts", "2"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert run(words) == 0, capsys.readouterr().err
        assert capsys.readouterr().out
    for verb in ("check", "run", "plan", "fmt"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y = = 1\n")))
        assert run([verb, "-"]) == 2
        assert "<stdin>:1:3" in capsys.readouterr().err
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
        assert run([verb, "-"]) == 2
        assert "<stdin> is not a program" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["run", "-", "-", "--random"]) == 2
    assert "once" in capsys.readouterr().err
