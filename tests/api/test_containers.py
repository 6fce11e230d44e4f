"""Outputs in one container, and outputs over an input's own file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import einturnip as et

TEXT = "input a : f64[n]\nc[i] = a[i] * 2\ns = sum[i] a[i]\noutput c, s\n"


def test_results_in_one_archive_are_read_back_by_name(tmp_path: Path) -> None:
    file = str(tmp_path / "s.npz")
    result = et.compile(TEXT)(a=np.arange(3.0), out={"c": f"{file}::c", "s": file})
    with np.load(file) as archive:
        np.testing.assert_array_equal(archive["c"], [0, 2, 4])
        assert archive["s"] == 3
    assert set(result) == {"c", "s"}


def test_an_output_may_replace_the_file_of_an_input(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.arange(1000.0))
    program = et.compile("input a : f64[n]\nb[i] = a[i] + sum[j] a[j]\noutput b\n")
    program(a=str(file), out={"b": str(file)}, arena="4KiB")
    np.testing.assert_array_equal(np.load(file), np.arange(1000.0) + np.arange(1000.0).sum())
