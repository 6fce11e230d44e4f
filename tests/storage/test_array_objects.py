"""Objects of other libraries as inputs: used in place or read by tile, or refused with a message that names them."""

from __future__ import annotations

import array
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import einturnip as et
from einturnip.core.errors import BindError, DTypeError, StoreError
from einturnip.storage.arrays import ArraySource
from einturnip.storage.open import open_source
from einturnip.storage.types import Source

TABLE = np.arange(12.0).reshape(4, 3)
CUBE = np.arange(5 * 7 * 3).reshape(5, 7, 3)


def every_region(source: Source, expected: np.ndarray[Any, Any]) -> None:
    """Read the whole source, and regions within and across its chunks."""
    shape = expected.shape
    for low, high in ((0, 1), (0, 0.5), (0.3, 0.8), (0.5, 0.5)):
        region = tuple((int(low * n), int(high * n)) for n in shape)
        out = np.empty([b - a for a, b in region], source.dtype.numpy)
        source.read(region, out)
        np.testing.assert_array_equal(out, expected[tuple(slice(a, b) for a, b in region)])
    source.close()


class Sliced:
    """An object with a shape, a dtype and slices, which counts what is read of it."""

    def __init__(self, held: np.ndarray[Any, Any], chunks: tuple[int, ...] | None = None) -> None:
        self.held, self.shape, self.dtype = held, held.shape, held.dtype
        self.largest = 0
        if chunks is not None:
            self.chunks = chunks

    def __getitem__(self, index: Any) -> Any:
        found = self.held[index]
        self.largest = max(self.largest, found.size)
        return found

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise AssertionError("read as a whole")


@pytest.mark.parametrize("chunks", [None, (2, 3, 2), (5, 7, 3), (9, 9, 9)])
def test_objects_with_slices(chunks: tuple[int, ...] | None) -> None:
    every_region(open_source(Sliced(CUBE, chunks), "x"), CUBE)
    scalar = Sliced(np.array(3.0))
    assert et.einsum("->", scalar) == 3
    assert et.einsum("i->", Sliced(np.empty(0))) == 0


def test_objects_are_read_in_parts() -> None:
    big = Sliced(np.broadcast_to(np.float64(1), (3000, 3000)))  # 69 MiB
    result = et.compile("input X : f64[n,m]\ns[j] = sum[i] X[i,j]\noutput s")(X=big, memory="60MiB")
    np.testing.assert_array_equal(result["s"], np.full(3000, 3000.0))
    assert big.largest * 8 <= 8 << 20


def test_what_lies_about_itself_is_refused(tmp_path: Any) -> None:
    program = et.compile("input X : f64[n,m]\nY[i,j] = 2 * X[i,j]\noutput Y")
    target = tmp_path / "y.npy"

    class Shorter(Sliced):
        def __getitem__(self, index: Any) -> Any:
            return self.held[index][:-1]

    class Wider(Sliced):
        def __getitem__(self, index: Any) -> Any:
            return self.held[index].astype(complex)

    class Broken(Sliced):
        def __getitem__(self, index: Any) -> Any:
            raise RuntimeError("checksum of a chunk")

    for kind, said in ((Shorter, r"f64\[4, 3\], but"), (Wider, "returned complex128"), (Broken, "checksum")):
        with pytest.raises(StoreError, match=rf"input X: the \S*{kind.__name__} given.*{said}"):
            program(X=kind(TABLE), out={"Y": target})
        assert not target.exists()

    class Interface:
        shape = (3, 4)
        __array_interface__ = TABLE.__array_interface__

    with pytest.raises(BindError, match=r"X: the \S*Interface given states the shape \[3, 4\].*\[4, 3\]"):
        program(X=Interface())


def test_a_shape_that_changes_after_planning_is_refused(tmp_path: Any) -> None:
    program = et.compile("input X : f64[n,m]\nY[i,j] = 2 * X[i,j]\noutput Y")
    target, x = tmp_path / "y.npy", Sliced(TABLE)
    plan = program.plan(X=x, out={"Y": target})
    x.shape = (2, 3)
    with pytest.raises(BindError, match=r"X: the \S*Sliced given had shape \[4, 3\] when.*\[2, 3\] now"):
        plan.run()
    held = TABLE.copy()
    plan = program.plan(X=held)
    held.shape = (3, 4)
    with pytest.raises(BindError, match=r"X: the array given had shape \[4, 3\] when.*\[3, 4\] now"):
        plan.run()
    del x.shape
    plan = program.plan(X=(other := Sliced(TABLE)))
    del other.shape
    with pytest.raises(BindError, match="X: .*Sliced given cannot be read any more"):
        plan.run()
    assert not target.exists()


def test_objects_in_memory() -> None:
    class WithArray:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return TABLE

    class Exporter:  # DLPack
        def __dlpack__(self, **options: Any) -> Any:
            return TABLE.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return TABLE.__dlpack_device__()

    for value in (WithArray(), Exporter(), memoryview(TABLE)):
        source = open_source(value, "x")
        assert isinstance(source, ArraySource) and np.shares_memory(source.array, TABLE)
    assert et.einsum("i->", array.array("d", [1, 2, 4])) == 7
    assert et.einsum("i->", bytearray(b"\1\2")) == 3
    for refused in (object(), b"abc", {"a": 1}):
        with pytest.raises(DTypeError, match=f"x: takes .*not {type(refused).__name__}"):
            open_source(refused, "x")


def test_masked_and_other_devices_are_refused() -> None:
    with pytest.raises(BindError, match=r"x: the masked array given.*filled\(0\)"):
        open_source(np.ma.masked_array(TABLE, mask=TABLE > 3), "x")

    class OnDevice:
        shape, dtype = (4, 3), np.dtype(float)

        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError

        def __dlpack_device__(self) -> Any:
            return (10, 1)  # ROCm

    with pytest.raises(BindError, match="x: the .*OnDevice given is in the memory of a device .*move it to the CPU"):
        open_source(OnDevice(), "x")
    with pytest.raises(DTypeError, match="operand 0: .*object"):
        et.einsum("i->", np.array([object()]))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_narrow_floats(kind: str) -> None:
    x = TABLE.astype(getattr(ml_dtypes, kind))
    expected = x.astype(np.float32)
    for _ in range(3):  # from the second call on, from the call cache
        np.testing.assert_array_equal(et.einsum("ij->ij", x).astype(np.float32), expected)
    declared = "bf16" if kind == "bfloat16" else "f64"
    result = et.compile(f"input X : {declared}[n,m]\nY[i,j] = f32(X[i,j])\noutput Y")(X=x)
    np.testing.assert_array_equal(result["Y"], expected)
    if kind != "bfloat16":
        every_region(open_source(x, "x"), expected)


# -- libraries ---------------------------------------------------------------------------------------------------------


def test_pandas() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(TABLE, columns=list("abc"))
    every_region(open_source(frame, "x"), TABLE)
    source = open_source(frame["b"], "x")
    assert isinstance(source, ArraySource)
    mixed = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5], "c": pd.array([3, 4], dtype="Int64")})
    every_region(open_source(mixed, "x"), np.array([[1, 0.5, 3], [2, 1.5, 4]]))
    every_region(open_source(pd.Index([3, 5]), "x"), np.array([3, 5]))
    every_region(open_source(pd.Series([1, 2, 3], dtype="Int64"), "x"), np.array([1, 2, 3]))
    with pytest.raises(DTypeError, match="x: the pandas.*DataFrame given, column 'name', has the type .*not numeric"):
        open_source(frame.assign(name="text"), "x")
    with pytest.raises(BindError, match="x: the pandas.*Series given.*missing values"):
        open_source(pd.Series([1, None], dtype="Int64"), "x")


def test_polars() -> None:
    pl = pytest.importorskip("polars")
    every_region(open_source(pl.DataFrame(TABLE), "x"), TABLE)
    assert isinstance(open_source(pl.Series([1.0, 2.0]), "x"), ArraySource)
    every_region(open_source(pl.Series([True, False]), "x"), np.array([True, False]))
    every_region(open_source(pl.DataFrame({"a": [1, 2], "b": [0.5, 1]}), "x"), np.array([[1, 0.5], [2, 1]]))
    with pytest.raises(BindError, match="polars.*Series given.*missing values"):
        open_source(pl.Series([1, None]), "x")
    with pytest.raises(DTypeError, match="column 'b', has the type String.*not numeric"):
        open_source(pl.DataFrame({"a": [1], "b": ["text"]}), "x")
    with pytest.raises(BindError, match=r"LazyFrame.*collect\(\)"):
        open_source(pl.DataFrame(TABLE).lazy(), "x")


def test_pyarrow() -> None:
    pa = pytest.importorskip("pyarrow")
    assert isinstance(open_source(pa.array([1.0, 2.0]), "x"), ArraySource)
    every_region(open_source(pa.chunked_array([[1, 2], [3]]), "x"), np.array([1, 2, 3]))
    every_region(open_source(pa.array([True, False]), "x"), np.array([True, False]))
    table = pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    every_region(open_source(table, "x"), np.array([[1, 0.5], [2, 1.5], [3, 2.5]]))
    every_region(open_source(table.to_batches()[0], "x"), np.array([[1, 0.5], [2, 1.5], [3, 2.5]]))
    with pytest.raises(BindError, match="pyarrow.*given.*missing values"):
        open_source(pa.array([1, None]), "x")
    with pytest.raises(DTypeError, match="has the type string, which is not numeric"):
        open_source(pa.array(["text"]), "x")


def test_xarray(tmp_path: Any) -> None:
    xr = pytest.importorskip("xarray")
    held = xr.DataArray(TABLE, dims=("row", "column"))
    source = open_source(held, "x")
    assert isinstance(source, ArraySource) and np.shares_memory(source.array, TABLE)
    with pytest.raises(BindError, match=r"takes one xarray.DataArray, not xarray.*Dataset"):
        open_source(held.to_dataset(name="a"), "x")
    pytest.importorskip("dask.array")
    every_region(open_source(held.chunk({"row": 2}), "x"), TABLE)
    pytest.importorskip("zarr")
    held.to_dataset(name="a").to_zarr(tmp_path / "a.zarr")
    lazy = xr.open_zarr(tmp_path / "a.zarr", chunks=None)["a"]
    source = open_source(lazy, "x")
    assert not isinstance(source, ArraySource) and not lazy.variable._in_memory
    every_region(source, TABLE)
    assert not lazy.variable._in_memory


def test_zarr(tmp_path: Any) -> None:
    zarr = pytest.importorskip("zarr")
    x = zarr.create_array(str(tmp_path / "x.zarr"), shape=CUBE.shape, chunks=(2, 3, 2), dtype=">i4")
    x[...] = CUBE
    every_region(open_source(x, "x"), CUBE)
    y = zarr.open_array(str(tmp_path / "x.zarr"), mode="a")
    plan = et.compile("input x : i32[i,j,k]\ns = sum[i,j,k] x[i,j,k]\noutput s").plan(x=y)
    assert plan.run()["s"] == CUBE.sum()
    y.resize((4, 7, 3))
    with pytest.raises(BindError, match=r"x: the zarr.*Array given had shape \[5, 7, 3\] when"):
        plan.run()


def test_zarr_with_a_damaged_chunk(tmp_path: Any) -> None:
    zarr = pytest.importorskip("zarr")
    x = zarr.create_array(str(tmp_path / "x.zarr"), shape=(40, 30), chunks=(20, 30), dtype="f8")
    x[...] = np.random.default_rng(0).random((40, 30))
    damaged = max((p for p in (tmp_path / "x.zarr").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:50])
    program = et.compile("input X : f64[n,m]\nY[i,j] = 2 * X[i,j]\noutput Y")
    with pytest.raises(StoreError, match="input X: the zarr.*Array given cannot read"):
        program(X=x, out={"Y": tmp_path / "y.npy"})
    assert not (tmp_path / "y.npy").exists()


def test_h5py(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        every_region(open_source(file.create_dataset("plain", data=CUBE), "x"), CUBE)
        every_region(open_source(file.create_dataset("chunks", data=CUBE, chunks=(2, 3, 2)), "x"), CUBE)
        plan = et.compile("input x : i64[i,j,k]\ns = sum[i,j,k] x[i,j,k]\noutput s").plan(x=file["plain"])
        text = file.create_dataset("text", data=["a", "b"])
        with pytest.raises(DTypeError, match="x: the h5py.*Dataset given has dtype object"):
            open_source(text, "x")
    with pytest.raises(BindError, match="x: the h5py.*Dataset given cannot be read any more.*keep it open"):
        plan.run()


def test_blosc2() -> None:
    blosc2 = pytest.importorskip("blosc2")
    source = open_source(blosc2.asarray(CUBE, chunks=(2, 3, 2)), "x")
    assert not isinstance(source, ArraySource)
    every_region(source, CUBE)


def test_sparse_matrices() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.where(np.arange(35).reshape(5, 7) % 4 == 1, np.arange(35.0).reshape(5, 7), 0)
    for form in ("csr", "csc", "coo", "bsr", "lil", "dok", "dia"):
        every_region(open_source(sparse.coo_array(dense).asformat(form), "x"), dense)
        every_region(open_source(sparse.coo_matrix(dense).asformat(form), "x"), dense)
    twice = sparse.coo_array(([1.0, 2.0, 4.0], ([1, 0, 1], [2, 0, 2])), shape=(2, 3))
    np.testing.assert_array_equal(et.einsum("ij->ij", twice), twice.toarray())
    assert twice.nnz == 3  # unchanged
    np.testing.assert_array_equal(et.einsum("ij,jk->ik", sparse.csr_array(dense), dense.T), dense @ dense.T)


def test_pydata_sparse() -> None:
    sparse = pytest.importorskip("sparse")
    dense = np.where(CUBE % 5 == 1, CUBE, 0)
    every_region(open_source(sparse.COO.from_numpy(dense), "x"), dense)
    every_region(open_source(sparse.GCXS.from_numpy(dense), "x"), dense)
    every_region(open_source(sparse.DOK.from_numpy(dense), "x"), dense)
    every_region(open_source(sparse.COO.from_numpy(dense + 3, fill_value=3), "x"), dense + 3)


def test_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    for kind in (jnp.float32, jnp.bfloat16, jnp.int32, jnp.float8_e5m2):
        x = jnp.asarray(TABLE, kind)
        np.testing.assert_array_equal(et.einsum("ij->ji", x).astype(np.float32), np.asarray(x).astype(np.float32).T)


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    for kind in (torch.float32, torch.bfloat16, torch.int32, torch.float8_e5m2, torch.float8_e4m3fn):
        x = torch.asarray(TABLE).to(kind)
        found = np.asarray(et.einsum("ij->ji", x)).astype(np.float32)
        np.testing.assert_array_equal(found, x.float().numpy().T)
    with pytest.raises(BindError, match="operand 0: the Tensor given does not share its memory.*detach"):
        et.einsum("i->", torch.ones(3, requires_grad=True))
    with pytest.raises(BindError, match="operand 0: .*Tensor given.*CPU"):
        et.einsum("i->", torch.ones(3, device="meta"))


def test_no_other_library_is_imported() -> None:
    text = (
        "import sys, numpy as np, einturnip as et\n"
        "et.einsum('ij,jk->ik', np.eye(3), np.eye(3)); et.einsum('i->', memoryview(np.ones(3)))\n"
        "names = 'pandas polars pyarrow xarray dask zarr h5py blosc2 scipy sparse torch jax'.split()\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
