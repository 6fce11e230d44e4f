"""Sessions and plans that several threads use: one call after the other, and no call from within another."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import einturnip as et
from einturnip.ir.dtypes import DTYPES
from einturnip.runtime.host import run_resources
from einturnip.storage.chunks import chunked_source
from einturnip.storage.formats.model_files import read_header
from tests.state.test_session import by_threads, crews

COUNTER = "state k : i64 = 0\ninput x : f64[n]\nk <- k + 1\ns = k + sum[i] x[i]\noutput s"
PRODUCT = "input A : f64[n, n]\nC[i,j] = A[i,k] * A[k,j]\noutput C"


@pytest.fixture
def switching():
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("progress", [None, by_threads])
def test_no_step_of_several_threads_is_lost(switching, progress) -> None:
    with et.compile(COUNTER).session(arena="1MiB") as session, ThreadPoolExecutor(6) as pool:
        x = np.zeros(3)
        found = list(pool.map(lambda _: int(session.step(x=x, progress=progress)["s"]), range(60)))
        assert sorted(found) == list(range(60))  # ``s`` is made of the state as the step found it
        assert session.state("k") == session.steps == 60


def test_states_are_looked_at_set_and_saved_between_steps(switching, tmp_path) -> None:
    text = "state A : f64[400] = 0\nA[i] <- A[i] + 1\ns = A[0]\noutput s"
    with et.compile(text).session(arena="1MiB") as session, ThreadPoolExecutor(4) as pool:

        def use(n: int) -> bool:
            if n % 4 == 0:
                session.set_state("A", np.full(400, float(n)))
            elif n % 4 == 1:
                session.save(tmp_path / str(n))
            else:
                session.step()
            return len(set(session.state("A").tolist())) == 1

        assert all(pool.map(use, range(80)))


def test_a_call_from_within_a_step_is_refused() -> None:
    with et.compile(COUNTER).session(arena="1MiB") as session:
        x = np.ones(3)
        uses = (lambda: session.step(x=x), lambda: session.state("k"), session.close, lambda: session.save("unused"))
        uses += (lambda: session.load("unused"), lambda: session.set_state("k", 7))
        refused = []

        def within(_: object) -> None:
            for use in uses:
                with pytest.raises(et.RunError, match="using the session already"):
                    use()
                refused.append(use)

        assert session.step(x=x, progress=within)["s"] == 3
        assert len(refused) >= len(uses)

        class Feed:
            """Steps the session when it is asked for its numbers."""

            def __dlpack__(self, **asked: object) -> object:
                session.step(x=x)
                return x.__dlpack__()

            def __dlpack_device__(self) -> tuple[int, int]:
                return x.__dlpack_device__()

        with pytest.raises(et.RunError, match="using the session already"):
            session.step(x=Feed())
        assert session.step(x=x)["s"] == 4


def test_closing_waits_for_the_step_and_ends_the_next() -> None:
    session, closing = et.compile(COUNTER).session(arena="1MiB"), []

    def within(_: object) -> None:
        if not closing:
            closing.append(threading.Thread(target=session.close))
            closing[0].start()

    assert session.step(x=np.zeros(2), progress=within)["s"] == 0
    closing[0].join()
    for use in (lambda: session.step(x=np.zeros(2)), lambda: session.state("k"), lambda: session.load("unused")):
        with pytest.raises(et.RunError, match="closed"):
            use()


def test_a_checkpoint_mends_what_a_failed_step_left(tmp_path) -> None:
    text = "state W : f64[4] = 0\ninput K : i64[1]\ninput V : f64[4]\nW[j] <- W[j] + 1\nu[a] = V[K[a]]\noutput u"
    with et.compile(text).session(V=np.arange(4.0)) as session:
        session.step(K=np.array([2]))
        session.save(tmp_path)
        with pytest.raises(et.RunError):
            session.step(K=np.array([7]))
        assert session.load(tmp_path)
        session.step(K=np.array([1]))
        np.testing.assert_array_equal(session.state("W"), np.full(4, 2.0))


def test_runs_of_a_plan_into_one_array_are_not_mixed(switching) -> None:
    A = np.random.default_rng(0).integers(-3, 4, (150, 150)).astype(np.float64)
    out = np.empty_like(A)
    plan = et.compile(PRODUCT).plan(A=A, arena="200KiB", out={"C": out})

    def run(_: int) -> bool:
        found = plan.run()["C"]
        return found is out and bool((found == A @ A).all())

    def nested(_: object) -> None:
        with pytest.raises(et.RunError, match="using the plan already"):
            plan.run()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(24)))
    plan.run(progress=nested)


def test_a_plan_is_closed_after_its_runs(tmp_path) -> None:
    A = np.arange(10000.0).reshape(100, 100) % 7
    np.save(tmp_path / "a.npy", A)
    plan, closing = et.compile(PRODUCT).plan(A=str(tmp_path / "a.npy"), arena="64KiB"), []

    def within(_: object) -> None:
        if not closing:
            closing.append(threading.Thread(target=plan.close))
            closing[0].start()

    assert (plan.run(progress=within)["C"] == A @ A).all()
    closing[0].join()
    with pytest.raises(et.RunError, match="plan is closed"):
        plan.run()


def test_headers_read_by_several_threads(switching, tmp_path) -> None:
    paths = []
    for n in range(40):
        paths.append(tmp_path / f"{n}.safetensors")
        text = b'{"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}'
        paths[-1].write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: read_header(str(paths[n * 7 % 40])), range(2000)))
    assert len(found) == 2000


def test_no_threads_are_forgotten_when_runs_end_together(switching) -> None:
    lanes = {lane: 1 for lane in run_resources.Lane}
    start = threading.Barrier(8)

    def leave(_: int) -> None:
        made = run_resources.WorkerPool(lanes)
        start.wait()
        made.release()

    for _ in range(5):
        before = crews()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(leave, range(8)))
        assert len(crews() - before) <= len(lanes)
        run_resources.WorkerPool.acquire(lanes).close()


def test_sources_are_opened_while_others_are_counted(switching) -> None:
    stop = threading.Event()

    def opens() -> None:
        while not stop.is_set():
            source = chunked_source.ChunkedSource("x", (4,), DTYPES["f64"], (2,), lambda *_: None, lambda: None, 0)
            source.close()

    with ThreadPoolExecutor(3) as pool:
        busy = [pool.submit(opens) for _ in range(2)]
        try:
            assert all(chunked_source.reading_nbytes() >= 0 for _ in range(2000))
        finally:
            stop.set()
        for each in busy:
            each.result()
