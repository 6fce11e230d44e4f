"""An op that fails ends the run soon, names its statement, and releases everything."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest

import einturnip as et
from einturnip.kernels.protocol import PythonCall
from einturnip.runtime.host import event_loop, executor, run_resources, thread_pool
from tests.robustness.programs import GEMM, SPILLING, opened

WORKERS = 2
X = np.random.default_rng(0).random((300, 300)).astype(np.float32)


class Called:
    """A kernel that a function computes."""

    def __init__(self, call):
        self.call = call

    def prepare(self, arguments):
        return PythonCall(lambda: self.call(*arguments))


class FailsLater:
    """Compiles kernels; the fifth call of an elementwise one (or of any) raises the given error."""

    def __init__(self, compile_kernel, error, elementwise=False):
        self.compile_kernel, self.error, self.elementwise = compile_kernel, error, elementwise
        self.calls = 0

    def __call__(self, einsum, extents, mode, by_blas=False):
        kernel = self.compile_kernel(einsum, extents, mode, by_blas)

        def call(*arguments):
            self.calls += einsum.aggregation is None or not self.elementwise
            if self.calls == 5:
                raise self.error
            return kernel(*arguments)

        return Called(call)


@pytest.fixture
def arenas(monkeypatch):
    """The arenas of the runs in a test, as long as anyone holds them."""
    seen = weakref.WeakSet()

    class Watched(run_resources.HostArena):
        def __init__(self, nbytes):
            super().__init__(nbytes)
            seen.add(self)

    monkeypatch.setattr(run_resources, "HostArena", Watched)
    return seen


@pytest.mark.parametrize("error", [ZeroDivisionError("no such luck"), MemoryError(), FloatingPointError("odd")])
def test_an_error_in_a_kernel_names_its_statement_and_gives_all_back(tmp_path, monkeypatch, arenas, error):
    failing = FailsLater(executor.compile_kernel, error, elementwise=True)
    monkeypatch.setattr(executor, "compile_kernel", failing)
    before, threads = opened(os.getpid()), threading.active_count()
    (tmp_path / "spill").mkdir()
    (tmp_path / "c.npy").write_text("older")
    with pytest.raises(et.RunError) as caught:
        et.compile(SPILLING)(
            X=X, arena="256KiB", workers=WORKERS, spill=tmp_path / "spill", out={"C": str(tmp_path / "c.npy")}
        )
    assert failing.calls <= 5 + WORKERS  # those that were handed out when it failed
    assert str(caught.value).startswith("line 3: B[i,j] = exp(X[j,i]): " + type(error).__name__)
    assert caught.value.__cause__ is error
    assert sorted(os.listdir(tmp_path)) == ["c.npy", "spill"] and os.listdir(tmp_path / "spill") == []
    assert (tmp_path / "c.npy").read_text() == "older"
    assert threading.active_count() <= threads  # fewer, where some waited for this run
    del caught
    error.__traceback__ = None
    gc.collect()
    assert sorted(opened(os.getpid())) == sorted(before)
    assert len(arenas) == 0


def test_workers_that_run_when_another_fails_are_waited_for(monkeypatch):
    """One kernel fails while another is in its midst; that one ends after the run has noted the failure."""
    begun, ended, over = [], [], []
    two, noted = threading.Event(), threading.Event()

    class Together(FailsLater):
        def __call__(self, einsum, extents, mode, by_blas=False):
            kernel = self.compile_kernel(einsum, extents, mode, by_blas)

            def call(*arguments):
                begun.append(threading.get_ident())
                if len(set(begun)) == 2:
                    two.set()
                if begun[0] == threading.get_ident():
                    two.wait()
                    raise self.error
                noted.wait()
                bits = kernel(*arguments)
                ended.append(threading.get_ident())
                return bits

            return Called(call)

    class Noting(thread_pool.ThreadPoolDriver):
        def _ended(self, op, lane, thread, begin, end, failed):
            launches = super()._ended(op, lane, thread, begin, end, failed)
            if failed is not None:
                over.append(self.over.is_set())
                noted.set()
            return launches

    monkeypatch.setattr(event_loop, "ThreadPoolDriver", Noting)
    monkeypatch.setattr(executor, "compile_kernel", Together(executor.compile_kernel, ValueError("bad")))
    with pytest.raises(et.RunError, match=r"line 4: C\[i,j\] = sum\[k\] .*: ValueError: bad"):
        et.compile(GEMM)(A=X, B=X, arena="128KiB", workers=2)
    assert over == [False] and len(ended) == len(begun) - 1 > 0


def test_a_file_that_shrinks_during_the_run(tmp_path, monkeypatch):
    path = tmp_path / "x.npy"
    np.save(path, X)
    plan = et.compile(GEMM).plan(A=str(path), B=X, arena="64KiB", out={"C": str(tmp_path / "c.npy")})

    class Shrinks(FailsLater):
        def __call__(self, einsum, extents, mode, by_blas=False):
            os.truncate(path, 4096)
            return self.compile_kernel(einsum, extents, mode, by_blas)

    monkeypatch.setattr(executor, "compile_kernel", Shrinks(executor.compile_kernel, None))
    with pytest.raises(et.StoreError, match=r"reading 'A': .*x\.npy"):
        plan.run()
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_run_after_a_failed_one_is_right(monkeypatch):
    program = et.compile(GEMM)
    with monkeypatch.context() as patch:
        patch.setattr(executor, "compile_kernel", FailsLater(executor.compile_kernel, ValueError()))
        with pytest.raises(et.RunError):
            program(A=X, B=X, arena="128KiB")
    A = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert (program(A=A, B=A.T, arena="1MiB")["C"] == A @ A.T).all()
