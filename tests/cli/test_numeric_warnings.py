"""Warnings of NaN, overflow and division by zero name the statement and the element."""

from pathlib import Path

import numpy as np
import pytest

from einturnip.cli.main import run

TEXT = "input x : f64[n, m]\ny[j, i] = log(x[i, j])\ns = 1 / (1 + min[i, j] x[i, j])\noutput y, s\n"


@pytest.mark.parametrize("arena", ["1MiB", "8KiB"])
def test_the_element_is_that_of_the_whole_tensor(
    arena: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.ein").write_text(TEXT)
    x = np.ones((100, 70))
    x[91, 63] = -1
    np.save("x.npy", x)
    assert run(["run", "log.ein", "-i", "x=x.npy", "--arena", arena]) == 0
    err = capsys.readouterr().err
    assert "made nan in one tile (first y[63, 91] = nan, from x[91, 63] = -1.0): y[j, i] = log(x[i, j])" in err
    assert "divided by zero in one tile (first s = inf): s =" in err


def test_a_position_is_no_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("best.ein").write_text("input x : f64[n]\ny = argmax[i] log(x[i])\noutput y\n")
    np.save("x.npy", np.where(np.arange(4000) == 3777, -1.0, 1.0))
    assert run(["run", "best.ein", "-i", "x=x.npy", "--arena", "24KiB"]) == 0
    assert "made nan in one tile: y = argmax" in capsys.readouterr().err


@pytest.mark.parametrize("arena", ["1MiB", "8KiB"])
def test_nan_of_an_input_is_named_in_the_summary(
    arena: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("centred.ein").write_text(
        "input x : f32[n, m]\ny[j, i] = x[i, j] - mean[k] x[i, k]\ntop = max[i, j] x[i, j]\noutput y, top\n"
    )
    x = np.ones((100, 70), np.float32)
    x[91, 63] = np.nan
    np.save("x.npy", x)
    assert run(["run", "centred.ein", "-i", "x=x.npy", "--arena", arena]) == 0
    out = capsys.readouterr().out
    assert "value 0, 70 nan (first y[0, 91], from x[91, 63] = nan), checksum" in out
    assert "no numbers, 1 nan (from x[91, 63] = nan), checksum" in out


def test_a_value_of_a_loop_has_the_name_that_the_program_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("root.ein").write_text(
        "input a : f64\nx = a\nd = 1.0\nwhile d > 1e-9, at most 9 {\n  y = log(x)\n  d = abs(y - x)\n  x = y\n}\n"
        "z = x + 1\noutput x, z\n"
    )
    assert run(["run", "root.ein", "-i", "a=2", "--arena", "1MiB"]) == 0
    found = capsys.readouterr()
    assert "no numbers, 1 nan, checksum" in found.out and "no numbers, 1 nan (from x = nan), checksum" in found.out
    assert "#" not in found.out + found.err
