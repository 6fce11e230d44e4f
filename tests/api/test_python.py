"""The Python surface: programs, plans, einsum, files, and what a budget refuses."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import einturnip as et

CENTRED = """\
input X : f64[n, d]
input scale : f64 = 1
Y[i,c] = (X[i,c] - mean[c] X[i,c]) * scale
output Y
"""


@pytest.fixture
def X():
    return np.random.default_rng(0).integers(-8, 8, (6, 4)).astype(float)


@pytest.fixture
def program():
    return et.compile(CENTRED)


def centred(X):
    return X - X.mean(axis=1, keepdims=True)


def test_a_program_is_called_with_arrays(program, X):
    result = program(X=X, scale=2)
    assert (result["Y"] == 2 * centred(X)).all()
    assert list(result) == ["Y"] and len(result) == 1
    assert result.report.warnings == ()
    assert repr(result) == "Result(Y: float64[6, 4])"
    assert repr(program) == "Program(inputs: X, scale, outputs: Y)"
    with pytest.raises(KeyError, match="there are Y"):
        result["Z"]


def test_a_program_from_a_file_finds_its_data_beside_it(X, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/p.ein").write_text('input X : f64[n] = "x.npy"\nY[i] = X[i] * 2\noutput Y = "y.npy"\n')
    np.save(tmp_path / "sub/x.npy", X[0])
    monkeypatch.chdir(tmp_path)
    for path in ("sub/p.ein", tmp_path / "sub/p.ein"):
        result = et.compile(path)()
        assert (np.load("sub/y.npy") == 2 * X[0]).all()
        assert (np.asarray(result["Y"]) == 2 * X[0]).all()
        os.remove("sub/y.npy")


def test_inputs_may_be_paths_handles_lists_and_other_strides(program, X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    handle = et.open(tmp_path / "x.npy")
    assert handle.shape == (6, 4) and handle.dtype == np.float64
    for given in (tmp_path / "x.npy", str(tmp_path / "x.npy"), handle, X.tolist(), np.asfortranarray(X)):
        assert (program(X=given)["Y"] == centred(X)).all()


def test_results_go_to_files_and_arrays_of_the_caller(program, X, tmp_path):
    out = np.empty_like(X)
    result = program(X=X, out={"Y": out})
    assert result["Y"] is out and (out == centred(X)).all()
    result = program(X=X, out={"Y": tmp_path / "y.npy"})
    assert (np.load(tmp_path / "y.npy") == centred(X)).all()
    assert isinstance(result["Y"], et.File) and (np.asarray(result["Y"], np.float32) == centred(X)).all()


@pytest.mark.parametrize("scale", [2, 2.0, np.float32(2), np.int8(2), True + 1, np.array(2.0)])
def test_a_scalar_is_given_as_a_number(program, X, scale):
    assert (program(X=X, scale=scale)["Y"] == 2 * centred(X)).all()


def test_what_a_program_needs_and_warns_of(program):
    assert program.inputs == ("X", "scale") and program.required == ("X",) and program.outputs == ("Y",)
    assert program.warnings == ()
    (warning,) = et.compile("dim d = 4\ninput X : f64[n, d]\ns[i] = sum[d] X[i,d] * d\noutput s\n").warnings
    assert warning.startswith("warning[W001]: 'd' is the label here")


def test_an_input_whose_name_is_taken_goes_through_data():
    program = et.compile("input memory : f64[n]\ns = sum[i] memory[i]\noutput s\n")
    assert program(data={"memory": [1.0, 2.0]})["s"] == 3


def test_sizes_may_be_given_at_compilation(X):
    assert et.compile(CENTRED, dims={"d": 4})(X=X)["Y"].shape == (6, 4)
    with pytest.raises(et.BindError, match="size 'd' is 5"):
        et.compile(CENTRED, dims={"d": 5})(X=X)
    with pytest.raises(et.BindError, match="no dim 'dd'; did you mean 'd'"):
        et.compile(CENTRED, dims={"dd": 5})


def test_a_plan_is_explained_and_run_as_often_as_wanted(program, X):
    plan = program.plan(X=X, arena="1MiB")
    assert "output Y" in plan.explain() and "1.00 MiB for tiles" in plan.explain()
    first, second = plan.run()["Y"], plan.run()["Y"]
    assert first is not second and (first == second).all()


def test_a_plan_needs_only_sizes_until_it_is_run(program):
    plan = program.plan(dims={"n": 10**6, "d": 100}, memory="200MiB", out={"Y": "y.npy"})
    assert "f64[1000000, 100]" in plan.explain()
    with pytest.raises(et.BindError, match="input X .* has no data"):
        plan.run()
    assert not os.path.exists("y.npy")


def test_a_result_that_cannot_stand_in_memory_is_refused_by_name(program):
    with pytest.raises(et.CapacityError, match=r'result Y takes 122 MiB .* out=\{"Y": "Y.npy"\}'):
        program(X=np.zeros((4000, 4000)), memory="100MiB")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"Z": 1.0}, et.BindError, "no input 'Z'; it has X, scale"),
        ({}, et.BindError, "size 'n' has no value"),
        ({"X": np.zeros((2, 3), np.float32)}, et.BindError, "expected: f64"),
        ({"X": np.zeros(3)}, et.BindError, "another number of axes"),
        ({"X": np.zeros((2, 3)), "scale": 1j}, et.BindError, "cannot hold the number 1j"),
        ({"X": np.zeros((2, 3)), "out": {"Z": "z.npy"}}, et.BindError, "no output 'Z'"),
        ({"X": np.zeros((2, 3)), "out": {"Y": np.zeros(2)}}, et.BindError, "output Y"),
        ({"X": "absent.npy"}, et.BindError, "absent.npy"),
        ({"X": np.zeros((2, 3)), "memory": "2G"}, et.BindError, "2GiB or 2GB"),
        ({"X": np.zeros((2, 3)), "arena": 8}, et.CapacityError, "the minimum"),
    ],
)
def test_what_is_refused(program, arguments, error, words):
    with pytest.raises(error, match=words):
        program(**arguments)


def test_a_wrong_program_shows_the_place():
    with pytest.raises(et.SourceError, match="<text>:2:"):
        et.compile("input X : f64[n]\nY[i] = X[i] + Q[i]\noutput Y\n")
    with pytest.raises(et.BindError, match="there is no program nowhere.ein"):
        et.compile("nowhere.ein")


def test_arrays_are_told_of_as_arrays():
    product = et.compile("input A : f64[n, k]\ninput B : f64[k, m]\nC[i,j] = A[i,p] * B[p,j]\noutput C\n")
    with pytest.raises(et.BindError) as error:
        product(A=np.ones((2, 3)), B=np.ones((4, 2)))
    assert "size 'k' is 3 by axis 1 of A, but 4 by axis 0 of B\n" in str(error.value)
    with pytest.raises(et.BindError) as error:
        product(A=np.ones(3), B=np.ones((4, 2)))
    assert "found: 1 axis, [3]\n" in f"{error.value}\n"
    with pytest.raises(et.BindError) as error:
        product(A=np.ones((2, 3)))
    assert 'give B a file or an array, or m a value: --dim m=..., in Python dims={"m": ...}' in str(error.value)


def test_a_slice_that_leaves_its_axis_is_named_as_it_is_written():
    text = "input X : f64[n, m]\nY[:] = X[0, 0:7]\noutput Y\n"
    with pytest.raises(et.EinturnipError, match=r"index '0:7' leaves axis 1 of X: it is 0 .. 6, the axis is 0 .. 2"):
        et.compile(text)(X=np.ones((2, 3)))


def test_threads_share_a_program(program):
    arrays = [np.full((5, 3), float(k)) + np.arange(3) for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda a: program(X=a, arena="1MiB")["Y"], arrays))
    assert all((y == centred(a)).all() for y, a in zip(found, arrays, strict=True))


def in_child(work):
    """The exit status of a forked child that runs ``work``."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_forked_before_a_run_may_run(program, X):
    assert in_child(lambda: 0 if (program(X=X)["Y"] == centred(X)).all() else 3) == 0


def test_a_child_forked_during_a_run_is_told_so(program, X):
    status = []

    def refused():
        try:
            program(X=X)
        except et.RunError as error:
            return 0 if "forked" in str(error) else 4
        return 5

    def fork(progress):
        if not status:
            status.append(in_child(refused))

    program(X=X, progress=fork)
    assert status == [0]
    assert (program(X=X)["Y"] == centred(X)).all()


def test_a_run_may_be_stopped(program, X):
    stop = threading.Event()
    stop.set()
    with pytest.raises(et.Interrupted):
        program.plan(X=X, arena="1MiB").run(stop=stop)


RNG = np.random.default_rng(1)


def digits(*shape, dtype=float):
    return RNG.integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize(
    ("subscripts", "operands"),
    [
        ("ij,jk->ik", (digits(5, 6), digits(6, 7))),
        ("ij,jk", (digits(5, 6, dtype=np.float32), digits(6, 7))),
        ("ij,jk,kl->li", (digits(5, 6), digits(6, 7), digits(7, 3))),
        ("ij->ji", (digits(5, 6, dtype=np.int8),)),
        ("ij->j", (digits(5, 6, dtype=np.int8),)),
        ("ii->i", (digits(5, 5),)),
        ("ii", (digits(5, 5, dtype=np.int64),)),
        ("i,j->ij", (digits(5), digits(6))),
        ("ij,ij->", (digits(5, 6, dtype=np.complex64), digits(5, 6))),
        ("...ij,...jk->...ik", (digits(2, 3, 5, 6), digits(3, 6, 7))),
        ("...i,...i", (digits(4, 1, 6), digits(5, 6))),
        ("ij,jk->ik", (digits(5, 1), digits(6, 7))),
        (",ij->ij", (digits(), digits(5, 6))),
        ("ij,jk->ik", (digits(5, 6) > 0, digits(6, 7) > 0)),
        ("ij->", (digits(0, 6),)),
    ],
)
def test_einsum_is_numpys(subscripts, operands):
    expected = np.einsum(subscripts, *operands)
    found = et.einsum(subscripts, *operands, arena="1MiB")
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert (found == expected).all()


def test_einsum_takes_numpys_other_arguments(tmp_path):
    a, b = digits(5, 6), digits(6, 7)
    assert (et.einsum(a, [0, 1], b, [1, 2]) == a @ b).all()
    out = np.empty((5, 7))
    assert et.einsum("ij,jk->ik", a, b, out=out) is out and (out == a @ b).all()
    assert et.einsum("ij->", a, dtype=np.float32, casting="same_kind").dtype == np.float32
    assert (et.einsum("ij,jk->ik", a.tolist(), b) == a @ b).all()
    np.save(tmp_path / "a.npy", a)
    streamed = et.einsum("ij,jk->ik", tmp_path / "a.npy", b, out=tmp_path / "c.npy", memory="256MiB")
    assert (np.asarray(streamed) == a @ b).all()
    np.save(tmp_path / "row.npy", a[:1])
    assert (et.einsum("ij,ij->ij", a, tmp_path / "row.npy") == a * a[:1]).all()
    with pytest.raises(et.BindError, match="label 'j' of 'ij,jk->ik' has size 6 in operand 0"):
        et.einsum("ij,jk->ik", a, a)


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'compute'"):
        et.compute  # noqa: B018
    assert {"compile", "einsum", "open", "SourceError"} <= set(dir(et))


def test_a_program_imports_from_beside_itself_and_a_text_from_here(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/twice.ein").write_text("fn twice(x) = 2 * x\n")
    text = 'import "{}twice.ein"\ninput x : f64[n]\ny[i] = twice(x[i])\noutput y\n'
    (tmp_path / "sub/p.ein").write_text(text.format(""))
    monkeypatch.chdir(tmp_path)
    for program in (et.compile("sub/p.ein"), et.compile(tmp_path / "sub/p.ein"), et.compile(text.format("sub/"))):
        assert (program(x=[1.0, 2.0])["y"] == [2, 4]).all()
    with pytest.raises(et.SourceError, match="there is no file 'twice.ein' to import"):
        et.compile(text.format(""))


def test_two_results_are_not_written_over_each_other(X):
    program = et.compile("input X : f64[n, d]\nY[i,c] = X[i,c] + 1\nZ[i,c] = X[i,c] * 2\noutput Y, Z\n")
    room = np.zeros((13, 4))
    for y, z in ((room[:6], room[:6]), (room[:6], room[5:11]), (room[:12:2], room[2:8])):
        with pytest.raises(et.BindError, match="outputs Y and Z share memory"):
            program(X=X, out={"Y": y, "Z": z})
    wide = np.zeros((6, 8))
    program(X=X, out={"Y": wide[:, ::2], "Z": wide[:, 1::2]})
    assert (wide[:, ::2] == X + 1).all() and (wide[:, 1::2] == 2 * X).all()


def test_sizes_and_settings_that_are_no_numbers_are_refused_in_the_callers_words(program, X):
    count = "dim n\ny[i: n] = i\noutput y\n"
    assert (et.compile(count, dims={"n": np.int8(3)})()["y"] == np.arange(3)).all()
    for size in ("3", 3.5, None):
        with pytest.raises(et.BindError, match="size n = .* is no whole number"):
            et.compile(count, dims={"n": size})
    for workers in (0, -1, "two", 1.5):
        with pytest.raises(et.BindError, match="workers=.* is no number of threads"):
            program(X=X, workers=workers)
    with pytest.raises(et.BindError, match="out= is a list"):
        program(X=X, out=[np.zeros((6, 4))])


@pytest.mark.parametrize("arena", ["16KiB", "64KiB"])
@pytest.mark.parametrize("b, i, j, k", [(3, 0, 80, 3), (3, 5, 0, 40), (0, 4, 5, 6), (2, 90, 90, 0)])
def test_products_without_elements_in_any_arena(b, i, j, k, arena):
    x, y = np.ones((b, i, j)), np.ones((b, j, k))
    assert (et.einsum("bij,bjk->bik", x, y, arena=arena) == x @ y).all()


def test_complex_numbers_for_a_real_input_are_refused_with_the_part_to_take() -> None:
    program = et.compile("input x : f32[n]\ny[i] = 2 * x[i]\noutput y\n")
    with pytest.raises(et.BindError, match=r"declare it as c128 \(and convert in the program: f32\(real\(x\)\)\)"):
        program(x=np.ones(3, complex))


def test_a_session_says_that_its_step_was_interrupted() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    program = et.compile("input x : f64[n]\nstate t : f64[n] = 0\nt[i] <- t[i] + x[i]\ns = sum[i] t[i]\noutput s\n")
    with program.session(arena="64KiB") as session:
        session.step(x=np.ones(5000))
        with pytest.raises(KeyboardInterrupt):
            session.step(x=np.ones(5000), progress=interrupt)
        with pytest.raises(et.RunError, match="step 1 ended half done: interrupted. help: load a checkpoint"):
            session.step(x=np.ones(5000))
