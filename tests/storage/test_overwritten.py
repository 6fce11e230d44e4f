"""Inputs that are overwritten in place while a run reads them: the run fails and publishes nothing."""

import os

import h5py
import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

import einturnip as et
from einturnip.core.errors import StoreError
from einturnip.ir.dtypes import DTYPES
from einturnip.storage.file_versions import require_unchanged
from einturnip.storage.open import OutputRequest, open_sinks, open_source
from einturnip.storage.outputs.state_storage import copy_tensor
from einturnip.storage.types import whole

PRODUCT = "input A : f32[n, n]\nC[i,j] = A[i,k] * A[k,j]\noutput C"
A = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float32)
LONG_AGO = 10**18


def aged(path) -> str:
    """The file, or the files of the directory, changed long ago: a change is seen however coarse the clock is."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    for file in files:
        os.utime(file, ns=(LONG_AGO, LONG_AGO))
    return str(path)


def stored(path, numbers: NDArray[np.float32]) -> str:
    """A file of the format that its name says; what it is called to tell compressed ones apart."""
    match path.name:
        case "a.npy":
            np.save(path, numbers)
        case "a.npz":
            np.savez(path, A=numbers)
        case "a.safetensors":
            (sink,) = open_sinks([OutputRequest(f"{path}::A", "A", numbers.shape, DTYPES["f32"])])
            sink.write(whole(numbers.shape), numbers)
            sink.commit()
        case "plain.zarr":
            zarr.create_array(path, data=numbers, chunks=(16, 16), compressors=None, overwrite=True)
        case "packed.zarr":
            zarr.create_array(path, data=numbers, chunks=(16, 16), overwrite=True)
        case "shards.zarr":
            zarr.create_array(path, data=numbers, chunks=(16, 16), shards=(32, 32), overwrite=True)
        case "a.h5":
            with h5py.File(path, "w") as file:
                file["A"] = numbers
        case "packed.h5":
            with h5py.File(path, "w") as file:
                file.create_dataset("A", data=numbers, chunks=(16, 16), compression="gzip")
    return aged(path)


def overwrite(path) -> None:
    """Change one byte in place, in the last file of a directory."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and p.suffix != ".json")
    with open(files[-1], "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


def at_the_end(path):
    """Progress that overwrites a file when all of a run's tiles were read, before its outputs are published."""
    return lambda told: overwrite(path) if told.done_ops == told.total_ops else None


FORMATS = ["a.npy", "a.npz", "a.safetensors", "plain.zarr", "packed.zarr", "shards.zarr", "a.h5", "packed.h5"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_fails_and_publishes_nothing(name, tmp_path) -> None:
    spec, out = stored(tmp_path / name, A), tmp_path / "c.npy"
    program = et.compile(PRODUCT)
    program(A=spec, arena="16KiB", out={"C": out})
    before = out.read_bytes()
    with pytest.raises(StoreError, match="was overwritten while it was being read"):
        program(A=spec, arena="16KiB", out={"C": out}, progress=at_the_end(tmp_path / name))
    assert out.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "c.npy"])


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_read_again_is_looked_at_first(name, tmp_path) -> None:
    source = open_source(stored(tmp_path / name, A), "A")
    found = np.empty_like(A)
    for _ in range(2):
        source.read(whole(source.shape), found)
        assert (found == A).all()
    overwrite(tmp_path / name)
    if name == "plain.zarr":  # as many chunks stay open as it has: they are looked at as the run ends
        with pytest.raises(StoreError, match="overwritten"):
            require_unchanged(source)
    else:
        with pytest.raises(StoreError, match="overwritten"):
            source.read(whole(source.shape), found)
    source.close()


def test_an_unpacked_member_is_whole(tmp_path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, A=A)
    found = et.compile(PRODUCT)(A=str(path), arena="16KiB", progress=at_the_end(path))["C"]
    assert (found == A @ A).all()


def test_a_file_that_is_replaced_is_still_read_as_it_was(tmp_path) -> None:
    spec = stored(tmp_path / "a.npy", A)

    def replace(_: object) -> None:
        np.save(tmp_path / "new.npy", A + 1)
        os.replace(tmp_path / "new.npy", spec)

    assert (et.compile(PRODUCT)(A=spec, arena="16KiB", progress=replace)["C"] == A @ A).all()


def test_a_plan_reads_the_file_that_it_was_made_for(tmp_path) -> None:
    plan = et.compile(PRODUCT).plan(A=et.open(stored(tmp_path / "a.npy", A)), arena="16KiB")
    assert (plan.run()["C"] == A @ A).all()
    overwrite(tmp_path / "a.npy")
    with pytest.raises(StoreError, match="overwritten"):
        plan.run()


@pytest.mark.parametrize("progress", [True, False])
def test_a_session_fails_and_keeps_its_states(progress, tmp_path) -> None:
    spec, told = stored(tmp_path / "a.npy", A), {"progress": lambda _: None} if progress else {}
    text = "input A : f32[n, n]\nstate s : f32 = 0\ns <- s + sum[i,j] A[i,j]"
    with et.compile(text).session(A=spec, arena="16KiB") as session:
        session.step(**told)
        overwrite(tmp_path / "a.npy")
        with pytest.raises(StoreError, match="overwritten"):
            session.step(**told)
        assert session.state("s") == A.sum() and session.steps == 1


@pytest.mark.parametrize("how", ["call", "small call", "einsum", "session"])
def test_a_mapped_file(how, tmp_path) -> None:
    spec = stored(tmp_path / "a.npy", A)
    mapped = np.load(spec, mmap_mode="r")
    writes = []

    class Written:
        """Has the file overwritten after the mapped array's version was taken."""

        def __dlpack__(self, **_: object) -> object:
            if writes:
                overwrite(tmp_path / "a.npy")
            return np.ones((), np.float32).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    text = "input A : f32[n, n]\ninput x : f32\nC[i,j] = x * A[i,k] * A[k,j]\noutput C"
    program = et.compile(text)
    with program.session(A=mapped) as session:

        def call():
            match how:
                case "call":
                    return program(A=mapped, x=Written(), arena="16KiB")
                case "small call":
                    return program(A=mapped, x=Written())
                case "einsum":
                    return et.einsum("ik,kj,->ij", mapped, mapped, Written())
                case "session":
                    return session.step(x=Written())

        call()
        writes.append(True)
        with pytest.raises(StoreError, match="overwritten"):
            call()


def test_a_result_may_be_written_into_the_file_that_an_input_maps(tmp_path) -> None:
    file = np.memmap(tmp_path / "both", np.float32, "w+", shape=(2, 64, 64))
    file[0] = A
    file.flush()
    aged(tmp_path / "both")
    for arena in ("16KiB", "4MiB"):
        et.compile(PRODUCT)(A=file[0], arena=arena, out={"C": file[1]})
        assert (file[1] == A @ A).all()


def test_a_state_that_is_read_from_a_file(tmp_path) -> None:
    spec = stored(tmp_path / "a.npy", A)
    (sink,) = open_sinks([OutputRequest(np.empty_like(A), "C", A.shape, DTYPES["f32"])])
    write = sink.write

    def written(*arguments):
        overwrite(tmp_path / "a.npy")
        return write(*arguments)

    sink.write = written
    source = open_source(spec, "A")
    with pytest.raises(StoreError, match="overwritten"):
        copy_tensor(source, sink)
    source.close()
