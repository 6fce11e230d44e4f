"""``%%ein`` in IPython: variables in, variables out, options, and errors as diagnostics."""

from contextlib import contextmanager

import numpy as np
import pytest

IPython = pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell  # noqa: E402

CELL = """\
%%ein{options}
input X : f64[n, d]
input scale : f64 = 1
centred[i,c] = (X[i,c] - mean[c] X[i,c]) * scale
total = sum[i,c] X[i,c]
output centred, total
"""


@pytest.fixture(scope="module")
def one_shell():
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_line_magic("load_ext", "einturnip.jupyter")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(one_shell):
    one_shell.reset(new_session=False)
    one_shell.user_ns["X"] = np.arange(6.0).reshape(2, 3)
    return one_shell


@pytest.fixture
def run(shell, capsys, monkeypatch):
    monkeypatch.setattr("einturnip.report.progress._DELAY", float("inf"))

    def call(options="", cell=CELL):
        result = shell.run_cell(cell.format(options=options))
        captured = capsys.readouterr()
        return result, captured.out + captured.err

    return call


def test_variables_are_inputs_and_outputs_become_variables(shell, run):
    result, told = run()
    assert result.success, told
    assert (shell.user_ns["centred"] == [[-1, 0, 1], [-1, 0, 1]]).all()
    assert shell.user_ns["total"] == 15.0 and np.ndim(shell.user_ns["total"]) == 0
    assert told == "centred : float64[2, 3]\ntotal : float64 = 15.0\n"


def test_a_loop_that_its_bound_ends_is_a_warning(shell, run):
    cell = "%%ein\nx = 1\nwhile x < 100, at most 3 {{\n  x = x * 2\n}}\noutput x\n"
    result, told = run(cell=cell)
    assert result.success and shell.user_ns["x"] == 8
    assert "warning: line 2: the loop ended at its bound of 3 iterations" in told


def test_a_variable_goes_before_a_default(shell, run):
    shell.user_ns["scale"] = 3
    run()
    assert (shell.user_ns["centred"] == [[-3, 0, 3], [-3, 0, 3]]).all()


def test_options(shell, run):
    result, told = run(" --memory 512MiB --dim n=2 --dim d=3 -q")
    assert result.success and told == ""
    assert "total" in shell.user_ns
    result, told = run(" --dim n=5")
    assert not result.success and "size 'n' is" in told and "5" in told
    for wrong in ("n=x", "n", "=4", "n=-1"):
        result, told = run(f" --dim {wrong}")
        assert not result.success and f"error: '{wrong}' is not of the form n=4096" in told
    shell.user_ns["X"] = np.zeros((2000, 2000))
    result, told = run(" --memory 1MiB")
    assert not result.success and "Traceback" not in told and "error: " in told
    result, told = run(" --memory 2G")
    assert not result.success and "2GiB or 2GB" in told


def test_errors_are_diagnostics_and_stop_the_cell(shell, run):
    result, told = run(cell="%%ein\ninput X : f64[n, d]\nY[i] = X[i, c] + Z[i]\noutput Y\n")
    assert type(result.error_in_exec).__name__ == "CellError"
    assert "unknown" in told and "'Z'" in told and "Y[i] = X[i, c] + Z[i]" in told and "^" in told
    assert "Traceback" not in told and "jupyter.py" not in told
    assert "Y" not in shell.user_ns


def test_an_input_that_is_no_variable_is_named(shell, run):
    del shell.user_ns["X"]
    shell.user_ns["Xs"] = 1
    result, told = run()
    assert not result.success and "error: input X is no variable of this notebook. help: did you mean 'Xs'?" in told
    del shell.user_ns["Xs"]
    assert "assign it in a cell before: X = ..." in run()[1]


def test_warnings_of_the_run_and_a_missing_output_are_shown(shell, run):
    result, told = run(cell="%%ein -q\ninput X : f64[n, d]\nroots[i,j] = sqrt(-X[i,j])\noutput roots\n")
    assert result.success and "warning: line 2" in told and "roots[i,j] = sqrt(-X[i,j])" in told
    result, told = run(cell="%%ein -q\ninput X : f64[n, d]\nY[i,j] = X[i,j]\n")
    assert not result.success and "error[E026]" in told and "add: output Y" in told


@pytest.mark.parametrize("options", ["", " --quiet"])
def test_a_cell_shows_its_progress(run, monkeypatch, options):
    seen = []

    @contextmanager
    def shown(quiet, notebook):
        seen.append((quiet, notebook))
        yield None

    monkeypatch.setattr("einturnip.jupyter.shown", shown)
    assert run(options)[0].success
    assert seen == [(bool(options), True)]
