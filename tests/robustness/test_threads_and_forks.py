"""Programs shared by threads and child processes; a run releases what it takes of the process."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import threadpoolctl

import einturnip as et
from einturnip.devices.host import blas_threads
from tests.devices.blas import blas_thread_count
from tests.robustness.programs import GEMM, SPILLING, opened


def test_ten_threads_call_one_program():
    program = et.compile(SPILLING)
    tensors = [np.random.default_rng(seed).random((60, 60), np.float32) for seed in range(10)]
    together = threading.Barrier(10)

    def call(X):
        together.wait()
        return program(X=X, arena="12KiB", workers=2)["C"]

    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(call, tensors))
    for X, C in zip(tensors, found, strict=True):
        B = np.exp(X.T.astype(np.float64))
        np.testing.assert_allclose(C, B @ B / B.sum(0), rtol=1e-4)


def test_blas_has_its_threads_back_in_whatever_order_runs_end():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        first, second = blas_threads(1), blas_threads(1)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_thread_count() == 1
        second.__exit__(None, None, None)
        assert blas_thread_count() == 2


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((30, 30), np.float32))
    return {"A": str(tmp_path / "a.npy"), "B": str(tmp_path / "a.npy")}, {"C": str(tmp_path / "c.npy")}


def test_calls_leave_no_file_open(files):
    inputs, out = files
    program = et.compile(GEMM)
    before = sorted(opened(os.getpid()))
    for _ in range(2):
        program(**inputs, out=out, arena="64KiB")
        with pytest.raises(et.CapacityError):
            program(**inputs, out=out, arena=1)
        with pytest.raises(et.BindError):
            program(A=inputs["A"], B="nowhere.npy")
        program.plan(**inputs, arena="64KiB").explain()
    assert sorted(opened(os.getpid())) == before


def test_a_plan_that_is_closed_holds_no_file_open(files):
    inputs, _ = files
    before = sorted(opened(os.getpid()))
    plan = et.compile(GEMM).plan(**inputs, arena="64KiB")
    assert (plan.run()["C"] == 30).all() and (plan.run()["C"] == 30).all()
    plan.close()
    plan.close()
    assert sorted(opened(os.getpid())) == before


def test_a_child_runs_what_its_parent_compiled_planned_and_ran(files):
    inputs, out = files
    program = et.compile(GEMM)
    plan = program.plan(**inputs, arena="64KiB")
    plan.run()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            right = (program(**inputs, arena="64KiB")["C"] == 30).all() and (plan.run()["C"] == 30).all()
            code = 0 if right else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (plan.run()["C"] == 30).all()
