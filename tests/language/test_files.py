"""Files in programs: inputs with defaults, arrays in containers, outputs, and imported functions."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import einturnip as et

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def run(folder: Path, text: str, name: str = "program.ein", **inputs: object) -> dict[str, np.ndarray]:
    """The outputs of a program in a file."""
    (folder / name).write_text(text, encoding="utf-8")
    return dict(et.compile(folder / name)(data=inputs, workers=1))


def test_a_default_file_is_relative_to_the_program(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    text = 'input X : f32[n, d] = "x.npy"\nZ[d] = X[n,d]\noutput Z\n'
    np.testing.assert_array_equal(run(tmp_path, text)["Z"], X.sum(0))
    np.testing.assert_array_equal(run(tmp_path, text, X=2 * X)["Z"], 2 * X.sum(0))


def test_a_named_array_inside_a_container(tmp_path: Path) -> None:
    save_file({"layer.0.weight": X, "layer.1.weight": X + 1}, tmp_path / "w.safetensors")
    np.savez(tmp_path / "b.npz", bias=X[0])
    text = """
    input W : f32[n, d] = "w.safetensors" :: "layer.1.weight"
    input b : f32[d] = "b.npz" :: "bias"
    Z[i,j] = W[i,j] + b[j]
    output Z
    """
    result = run(tmp_path, "\n".join(line.strip() for line in text.splitlines()))
    np.testing.assert_array_equal(result["Z"], X + 1 + X[0])


def test_an_output_with_a_file(tmp_path: Path) -> None:
    text = 'input X : f32[n, d]\nZ[i,j] = X[i,j] * 2\noutput Z = "z.npy"\n'
    (tmp_path / "program.ein").write_text(text, encoding="utf-8")
    et.compile(tmp_path / "program.ein")(X=X, workers=1)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), 2 * X)


def test_import_brings_in_the_functions_of_a_file_beside_the_program(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "more.ein").write_text("fn triple(x) = 3 * x\n", encoding="utf-8")
    (tmp_path / "layers.ein").write_text(
        'import "parts/more.ein"\nfn scaled(A[..., i], by) = triple(A[..., i]) * by\n', encoding="utf-8"
    )
    text = 'import "layers.ein"\ninput X : f32[n, d]\nZ[i,j] = scaled(X[i,j], 2)\noutput Z\n'
    np.testing.assert_array_equal(run(tmp_path, text, X=X)["Z"], 6 * X)


def test_import_brings_in_functions_alone(tmp_path: Path) -> None:
    (tmp_path / "layers.ein").write_text("fn f(x) = x\n", encoding="utf-8")
    with pytest.raises(et.SourceError) as caught:
        run(tmp_path, 'import "layers.ein"\na = g(1)\noutput a\n')
    assert "program.ein:2:5" in str(caught.value)


def test_an_error_in_an_imported_file_is_shown_there(tmp_path: Path) -> None:
    (tmp_path / "layers.ein").write_text("fn f(A[i]) = A[i] + q\n", encoding="utf-8")
    with pytest.raises(et.SourceError) as caught:
        run(tmp_path, 'import "layers.ein"\ninput X : f32[n]\nZ[i] = f(X[i])\noutput Z\n', X=X[0])
    assert "layers.ein:1:21" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(et.EinturnipError, match=r"gone\.npy"):
        run(tmp_path, 'input X : f32[n] = "gone.npy"\nZ[i] = X[i]\noutput Z\n')
    with pytest.raises(et.SourceError, match=r"gone\.ein"):
        run(tmp_path, 'import "gone.ein"\na = 1\noutput a\n')
