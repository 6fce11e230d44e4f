"""Loops, imports and hints."""

from pathlib import Path

import numpy as np
import pytest

from einturnip.core.errors import BindError, SourceError
from einturnip.lang import compile_text
from einturnip.lang.expressions import SizeLiteral
from einturnip.lang.printer import show
from einturnip.lang.program import Equation, Loop, PlanHint, TypedProgram
from tests.reference.program import Array, evaluate
from tests.reference.program_check import check


def compiled(text: str, file: str = "<text>") -> TypedProgram:
    program = compile_text(text, file)
    check(program)
    return program


def run(text: str, dims: dict[str, int] | None = None, **inputs: Array) -> dict[str, Array]:
    return evaluate(compiled(text), inputs, dims)


def message(text: str) -> str:
    with pytest.raises(SourceError) as error:
        compile_text(text)
    return str(error.value)


def test_rebinding_makes_a_new_version() -> None:
    out = run("x = 1\nfor t in 0 .. 5 { x = 2 * x + t }\noutput x\n")
    x = 1
    for t in range(5):
        x = 2 * x + t
    assert out["x"] == x


@pytest.mark.parametrize(
    ("start", "stop", "expected"), [("0", "n", 6), ("n", "0", 0), ("1", "n + 1", 10), ("n", "n", 0)]
)
def test_ranges(start: str, stop: str, expected: int) -> None:
    text = f"dim n = 4\ns = 0\nfor t in {start} .. {stop} {{ s = s + t }}\noutput s\n"
    assert run(text)["s"] == expected


def test_a_loop_fills_a_tensor() -> None:
    w = np.array([[1.0, 2], [0, 1]])
    text = """
    input W : f64[d, d]
    input h : f64[d]
    dim n
    H[t: n, e: d] = 0
    for t in 0 .. n {
      h[e] = sum[d] W[d, e] * h[d]
      H[t, d] = h[d]
    }
    output H, h
    """
    out = run(text, {"n": 3}, W=w, h=np.array([1.0, 2]))
    h, rows = np.array([1.0, 2]), []
    for _ in range(3):
        h = w.T @ h
        rows.append(h)
    np.testing.assert_array_equal(out["H"], rows)
    np.testing.assert_array_equal(out["h"], h)


def test_nested_loops() -> None:
    text = """
    dim n = 3
    A[i: n, j: n] = 0
    c = 0
    for a in 0 .. n {
      row = 10 * a
      for b in a .. n {
        A[a, b] = row + b
        c = c + 1
      }
      A[a, 0] = c
    }
    output A, c
    """
    out = run(text)
    expected, c = np.zeros((3, 3)), 0
    for a in range(3):
        for b in range(a, 3):
            expected[a, b] = 10 * a + b
            c += 1
        expected[a, 0] = c
    np.testing.assert_array_equal(out["A"], expected)
    assert out["c"] == c


def test_a_variable_is_a_size_and_a_number() -> None:
    v = np.arange(6.0)
    text = """
    input v : f64[n]
    s = 0.0
    for t in 1 .. 4 {
      p[i: t] = v[i + t] * t
      s = s + sum[i] p[i] + v[t] + v[n - t]
    }
    output s
    """
    s = sum((v[np.arange(t) + t] * t).sum() + v[t] + v[6 - t] for t in range(1, 4))
    assert run(text, v=v)["s"] == s


def test_several_targets_in_a_loop() -> None:
    text = "fn f(a, b) {\n  return b, a + b\n}\na = 0\nb = 1\nfor t in 0 .. 10 { a, b = f(a, b) }\noutput a\n"
    assert run(text)["a"] == 55


@pytest.mark.parametrize(
    ("before", "body", "dtype"),
    [
        ("s = 0", "s = s + x[t]", "f32"),
        ("s = 0", "s = s + t", "i64"),
        ("s = 0", "s = s + 0.5", "f64"),
        ("s = 0.5", "s = s + k[t]", "f64"),
        ("s = 0", "s = s + k[t]", "i32"),
        ("s = x[0]", "s = 0.5", "f32"),
        ("s = x[0]", "s = s * (1 / sqrt(n))", "f32"),
        ("s = false", "s = s or x[t] > 0", "bool"),
        ("s = 0\nu = 0", "s = s + u\nu = u + x[t]", "f32"),
        ("s = 0", "for r in 0 .. 2 { s = s + x[r] }", "f32"),
    ],
)
def test_a_dtype_from_numbers_gives_way(before: str, body: str, dtype: str) -> None:
    head = "input x : f32[n]\ninput k : i32[n]\n"
    program = compiled(f"{head}{before}\nfor t in 0 .. n {{\n{body}\n}}\noutput s\n")
    assert program.tensors[program.outputs[0].tensor].dtype.name == dtype
    arrays = {"x": np.array([1, 2], np.float32), "k": np.array([3, 4], np.int32)}
    assert evaluate(program, arrays)["s"].dtype.name == program.tensors[program.outputs[0].tensor].dtype.numpy.name


def test_loops_print_as_themselves() -> None:
    text = "input x : f32[n]\nfor t in 0 .. n - 1 {\n  x[i] = x[i] * t\n"
    text += "  for r in t .. n {\n    y[i] = x[i]\n    x[i] = y[i]\n  }\n}\noutput x\n"
    program = compiled(text)
    assert show(program).replace("dim n\n", "") == text
    loop = program.statements[2]
    assert isinstance(loop, Loop) and [c.name for c in loop.carried] == ["x"]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("for t in 0 .. 3 { y[i] = x[i] }\nz[i] = y[i]", "E020", "the loop's own"),
        ("for t in 0 .. 3 { y[i] = x[i] }\nz = t", "E020", "the loop's variable"),
        ("for t in 0 .. 3 { s[i] = x[i]\n }\ns = 1\nfor t in 0 .. 3 { s[i] = x[i] }", "E048", "number of axes"),
        ("for t in 0 .. 3 { x[i] = f64(x[i]) }", "E048", "f64"),
        ("for t in 0 .. 3 { x[i] = x[i] > 0 }", "E048", "bool"),
        ("for t in 0 .. 3 { y = sum[t] x[t] }", "E039", "no label in the loop"),
        ("for t in 0 .. 3 { y[t: 3] = x[t] }", "E039", "no label"),
        ("for t in 0 .. 3 { t = 1 }", "E039", "variable"),
        ("for n in 0 .. 3 { y = 1 }", "E039", "new name"),
        ("for x in 0 .. 3 { y = 1 }", "E039", "new name"),
        ("for t in 0 .. 3 { for t in 0 .. 2 { y = 1 } }", "E039", "new name"),
        ("for t in 0 .. zz { y = 1 }", "E020", "zz"),
        ("for t in 0 .. 2.5 { y = 1 }", "E052", "size"),
        ("for t in 0 .. 3 { y[i] = x[i] * zz }", "E020", "zz"),
        ("for t in 0 .. 3 { y[i] = w[i]\nw[i] = x[i] }", "E020", "w"),
    ],
)  # fmt: skip
def test_mistakes(text: str, code: str, says: str) -> None:
    shown = message(f"input x : f32[n]\n{text}\n")
    assert f"error[{code}" in shown and says in shown, shown
    assert shown.count("error[") == 1


def test_a_loop_that_changes_a_shape() -> None:
    text = "input x : f32[n]\nfor t in 0 .. 2 { x[i: n - 1] = x[i] }\noutput x\n"
    with pytest.raises(BindError, match="shape of x"):
        run(text, x=np.zeros(3, np.float32))


# -- imports -----------------------------------------------------------------------------------------------------------


def files(folder: Path, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.ein").write_text(text)
    return str(folder / "main.ein")


def compile_file(path: str) -> TypedProgram:
    return compiled(Path(path).read_text(), path)


def test_imports_are_relative_and_transitive(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    files(tmp_path / "deep", b='import "c.ein"\nfn two(x) = one(x) + 1\n', c="fn one(x) = x + 1\n")
    path = files(tmp_path, main='import "deep/b.ein"\nimport "deep/c.ein"\ny = two(one(1))\noutput y\n')
    program = compile_file(path)
    assert evaluate(program)["y"] == 4
    assert set(program.files) == {path, str(tmp_path / "deep/b.ein"), str(tmp_path / "deep/c.ein")}


def test_an_import_takes_functions_only(tmp_path: Path) -> None:
    path = files(tmp_path, main='import "a.ein"\ny = f(1)\noutput y\n', a="fn f(x) = x\nz = f(2)\noutput z\n")
    program = compile_file(path)
    assert [w.code for w in program.warnings] == ["W003"] and "z = f(2)" in program.warnings[0].render()
    assert [o.name for o in program.outputs] == ["y"]


def test_the_standard_library() -> None:
    text = "import std.nn\ninput x : f64[n, m]\ny[i,j] = softmax(x[i,j])\noutput y\n"
    x = np.array([[1.0, 2, 3]])
    np.testing.assert_allclose(run(text, x=x)["y"], np.exp(x) / np.exp(x).sum())
    assert "begin with: import std.nn" in message("input x : f64[n]\ny[i] = softmax(x[i])\n")
    assert "did you mean 'std.nn'" in message("import std.nm\n")


def test_import_mistakes(tmp_path: Path) -> None:
    path = files(tmp_path, main='import "layer.ein"\n', layers="fn f(x) = x\n", broken="fn f(x = x\n")
    cases = [
        ('import "layer.ein"\n', "E070", "did you mean 'layers.ein'?"),
        ('import "broken.ein"\n', "E002", "broken.ein:1"),
        ('import "main.ein"\n', "E071", "'main.ein' imports 'main.ein'"),
        ('import "loop.ein"\n', "E071", "'loop.ein' imports 'loop2.ein' imports 'loop.ein'"),
        ('import "body.ein"\n', "E020", "body.ein:2:11"),
        ('import "body.ein"\ny = g(true, 2)\n', "E020", "zz"),
        ('import "typed.ein"\ny = g(true, 2)\n', "E041", "called here"),
    ]
    files(tmp_path, loop='import "loop2.ein"\n', loop2='import "loop.ein"\n')
    files(tmp_path, body="\nfn f(x) = zz * x\nfn g(x, y) = f(x)\n", typed="\n\nfn g(x, y) = x - x\n")
    for text, code, says in cases:
        files(tmp_path, main=text)
        with pytest.raises(SourceError) as error:
            compile_file(path)
        shown = str(error.value)
        assert code in shown and says in shown and shown.count("error[") == 1, shown
    files(tmp_path, main='import "typed.ein"\ny = g(true, 2)\n')
    with pytest.raises(SourceError, match="fn g") as error:
        compile_file(path)
    assert "y = g(true, 2)" in str(error.value)


def test_a_function_of_the_program_goes_before_one_imported(tmp_path: Path) -> None:
    path = files(
        tmp_path,
        a="fn f(x) = 1\nfn g(x) = f(x)\n",
        main='import "a.ein"\nfn f(x) = 2\ny = f(0) * 10 + g(0)\noutput y\n',
    )
    assert evaluate(compile_file(path))["y"] == 21
    assert "E023" in message("fn f(x) = 1\nfn f(x) = 2\n")


# -- hints -------------------------------------------------------------------------------------------------------------


def test_hints() -> None:
    text = "input A : f32[n, n]\n@tile(i = 256, k = 4 parts) @place(cuda:0) @keep\nC[i,j] = A[i,k] * A[k,j]\noutput C\n"
    equation = compiled(text).tensors[-1]
    assert isinstance(equation, Equation)
    tile, place, keep = equation.hints
    assert tile == PlanHint(
        "tile", ((0, SizeLiteral(256, tile.span), False), (2, SizeLiteral(4, tile.span), True)), "", tile.span
    )
    assert place.device == "cuda:0" and keep.kind == "keep"


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        ("@tile(zz = 2)", "no label 'zz'"),
        ("@tile(i = 0)", "at least 1"),
        ("@tile(i = 2, i = 3)", "twice"),
        ("@keep @recompute", "exclude"),
        ("@keep @keep", "twice"),
        ("@place(gpu)", "@place(cuda:0)"),
    ],
)
def test_wrong_hints(hint: str, says: str) -> None:
    shown = message(f"input A : f32[n, n]\n{hint}\nC[i,j] = A[i,k] * A[k,j]\noutput C\n")
    assert "E075" in shown and says in shown


# -- while


def test_a_while_tests_its_condition_before_each_iteration() -> None:
    text = "input x : f64\nk = 0\nwhile x > 1, at most 9 { x = x / 2\n k = k + 1 }\noutput x, k\n"
    for begin, end, count in ((0.5, 0.5, 0), (1.5, 0.75, 1), (8.0, 1.0, 3), (2.0**20, 2.0**11, 9)):
        out = run(text, x=np.array(begin))
        assert (out["x"], out["k"]) == (end, count)


def test_a_while_in_a_function_and_a_condition_with_a_call() -> None:
    text = """
    fn size(v[i]) = max[i] abs(v[i])
    fn shrink(v[i], limit) {
      while size(v[i]) > limit, at most 100 {
        v[i] = v[i] / 2
      }
      return v[i]
    }
    input x : f64[n]
    y[i] = shrink(x[i], 1)
    z[i] = shrink(x[i], 0.1)
    output y, z
    """
    out = run(text, x=np.array([5.0, -2.0]))
    assert out["y"].tolist() == [0.625, -0.25] and out["z"].tolist() == [0.078125, -0.03125]


def test_a_while_prints_as_itself() -> None:
    text = "input x : f64\ndim N\nwhile x > 1 and x < 8, at most N - 1 {\n  x = x / 2\n}\noutput x\n"
    assert show(compiled(text)) == text


def test_a_condition_reads_dtypes_that_give_way() -> None:
    out = run("input a : f32\nx = 1\nwhile x < 20, at most 50 { x = x * a }\noutput x\n", a=np.array(1.5, np.float32))
    assert out["x"].dtype == np.float32 and 20 <= out["x"] < 30


def test_a_name_of_the_body_is_not_seen_by_the_condition() -> None:
    text = "input v : f64[n]\nwhile max[i] v[i] > 1, at most 9 {\n  i = 0\n  v[j] = v[j] / 2 + i\n}\noutput v\n"
    np.testing.assert_array_equal(run(text, v=np.array([1.0, 4.0]))["v"], [0.25, 1.0])


@pytest.mark.parametrize(
    ("condition", "codes"),
    [("x > y", ["W004"]), ("max[i] v[i] > y", ["W004"]), ("z > y", []), ("true", []), ("any[i] (v[i] < z)", [])],
)
def test_a_condition_that_no_iteration_changes_is_a_warning(condition: str, codes: list[str]) -> None:
    text = f"input x : f64, y : f64, v : f64[n]\nz = x\nwhile {condition}, at most 9 {{ z = z / 2 }}\noutput z\n"
    assert [warning.code for warning in compiled(text).warnings] == codes


def test_a_condition_of_each_element_of_a_call_is_refused() -> None:
    text = (
        "fn f(x) {\n  while x > 1, at most 9 { x = x / 2 }\n  return x\n}\ninput v : f64[n]\nY[i] = f(v[i])\noutput Y\n"
    )
    assert "a value for each 'i' of the call" in message(text) and "called here" in message(text)
