"""Models as published: GGUF with its quantised blocks, sharded safetensors, tensors stacked by a pattern of keys."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import einturnip as et
from einturnip.core.errors import BindError, StoreError
from einturnip.ir.dtypes import DTYPES
from einturnip.storage import open_source
from einturnip.storage.formats.quantized_blocks import ENCODINGS
from einturnip.storage.stacked import StackedSource
from einturnip.storage.types import Region, Source, expanded_to, region_shape, whole
from tests.drawn import examples

gguf = pytest.importorskip("gguf")
QUANTISED = {e.name: (number, e) for number, e in ENCODINGS.items() if e.expand is not None}


def _read(source: Source, region: Region | None = None) -> np.ndarray:
    region = whole(source.shape) if region is None else region
    out = np.full(region_shape(region), 77, source.dtype.numpy)
    source.read(region, out)
    return out


def _blocks(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Blocks of any bits, but for their scales, which are drawn as numbers so that no result is NaN."""
    _, encoding = QUANTISED[kind]
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape)) // encoding.points
    raw = rng.integers(0, 256, (count, encoding.nbytes), dtype=np.uint8)
    places = {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}.get(kind, (0, 2))
    for at in places:
        raw[:, at : at + 2] = rng.standard_normal(count).astype(np.float16).view(np.uint8).reshape(count, 2)
    return raw.reshape(*shape[:-1], -1)


def _write(path: Path, tensors: dict[str, tuple[np.ndarray, str]], metadata: bool = True) -> None:
    writer = gguf.GGUFWriter(str(path), "llama")
    if metadata:
        writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "ß"] * 50)
        writer.add_array("some.sizes", [1, 2, 3])
        writer.add_float32("some.eps", 0.5)
    for name, (array, kind) in tensors.items():
        plain = kind in ("F32", "F16", "I32", "F64")
        writer.add_tensor(name, array, raw_dtype=None if plain else gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", sorted(QUANTISED))
def test_blocks_expand_as_the_reference_does(tmp_path: Path, kind: str) -> None:
    raw = _blocks(kind, (3, 5, 512), 1)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    _write(tmp_path / "m.gguf", {"w": (raw, kind)})
    source = open_source(str(tmp_path / "m.gguf"), "w")
    assert (source.shape, source.dtype.name) == ((3, 5, 512), "f32")
    np.testing.assert_array_equal(_read(source), expected)
    part = ((1, 3), (2, 5), (37, 411))
    np.testing.assert_array_equal(_read(source, part), expected[1:3, 2:5, 37:411])
    source.release(part)
    source.close()


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_region_of_any_type(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    if not path.exists():
        _write(path, {kind: (_blocks(kind, (70, 1024), 2), kind) for kind in QUANTISED})
    kind = data.draw(st.sampled_from(sorted(QUANTISED)))
    source = open_source(f"{path}::{kind}", "w")
    region = tuple(tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in (70, 1024))
    dtype = data.draw(st.sampled_from(["f32", "f64", "f16", "bf16"]))
    everything = _read(source)
    (a, b), (c, d) = region
    found = _read(expanded_to(source, DTYPES[dtype]), region)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, everything[a:b, c:d].astype(found.dtype))
    source.close()


def test_plain_types_are_read_as_they_are_or_as_declared(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    bits = x.astype(ml_dtypes.bfloat16).view(np.uint8)
    _write(tmp_path / "m.gguf", {"h": (x, "F16"), "b": (bits, "BF16"), "i": (np.arange(5, dtype=np.int32), "I32")})
    for key, dtype in (("h", "f16"), ("b", "bf16"), ("i", "i32")):
        assert open_source(f"{tmp_path}/m.gguf::{key}", "x").dtype.name == dtype
    program = et.compile("input A : f32[n, m]\ninput B : f64[n, m]\nC[i, j] = A[i, j] + B[i, j]\noutput C")
    out = program(A=f"{tmp_path}/m.gguf::h", B=et.open(f"{tmp_path}/m.gguf::b"))["C"]
    np.testing.assert_array_equal(out, 2.0 * x)
    with pytest.raises(BindError, match="another dtype"):
        et.compile("input A : f32[n]\ns = sum[i] A[i]\noutput s")(A=f"{tmp_path}/m.gguf::i")


def test_only_pieces_are_expanded_at_a_time(tmp_path: Path) -> None:
    import tracemalloc

    _write(tmp_path / "m.gguf", {"w": (_blocks("Q4_K", (2048, 1024), 3), "Q4_K")})
    source = open_source(f"{tmp_path}/m.gguf", "w")
    out = np.empty(source.shape, np.float32)
    source.read(((0, 1), (0, 1024)), out[:1])
    tracemalloc.start()
    source.read(whole(source.shape), out)
    assert tracemalloc.get_traced_memory()[1] < 1 << 18
    tracemalloc.stop()
    source.close()


def _sharded(folder: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    tensors = {f"layers.{n}.w": rng.integers(-9, 9, (4, 6)).astype(np.float32) for n in range(12)}
    tensors["norm"] = np.ones(6, np.float32)
    files: dict[str, dict[str, np.ndarray]] = {}
    for n, (key, array) in enumerate(tensors.items()):
        files.setdefault(f"model-0000{n % 3}-of-00003.safetensors", {})[key] = array
    for name, held in files.items():
        save_file(held, str(folder / name), {"format": "pt"})
    index = {key: name for name, held in files.items() for key in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return tensors


@pytest.mark.parametrize("spec", ["{}", "{}/", "{}/model.safetensors.index.json"])
def test_a_model_as_published(tmp_path: Path, spec: str) -> None:
    folder = tmp_path / "model-1.5"
    folder.mkdir()
    tensors = _sharded(folder)
    for key, array in tensors.items():
        source = open_source(spec.format(folder) + f"::{key}", "x")
        np.testing.assert_array_equal(_read(source), array)
        source.close()
    stack = open_source(spec.format(folder) + "::layers.*.w", "x")
    assert stack.shape == (12, 4, 6)
    np.testing.assert_array_equal(_read(stack), np.stack([tensors[f"layers.{n}.w"] for n in range(12)]))
    np.testing.assert_array_equal(_read(stack, ((9, 11), (1, 3), (2, 5)))[1], tensors["layers.10.w"][1:3, 2:5])
    assert isinstance(stack, StackedSource)
    fds = {part.fd for part in stack.parts}  # type: ignore[attr-defined]
    assert len(fds) == 3, "files are opened once for all their tensors"
    stack.close()
    stack.close()
    with pytest.raises(OSError):
        __import__("os").fstat(fds.pop())


def test_a_stack_in_a_program(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    raw = {f"blk.{n}.w": (_blocks("Q8_0", (32, 32), n), "Q8_0") for n in range(3)}
    raw["blk.1.w"] = (rng.integers(-3, 3, (32, 32)).astype(np.float16), "F16")
    _write(tmp_path / "m.gguf", raw)
    weights = np.stack([_read(open_source(f"{tmp_path}/m.gguf::blk.{n}.w", "x")).astype(np.float32) for n in range(3)])
    text = """input W : f32[L, d, e]
    input X : f32[s, d]
    for l in 0 .. L {
      X[s, d] = sum[e] W[l, d, e] * X[s, e]
    }
    output X"""
    x = rng.integers(-3, 3, (4, 32)).astype(np.float32)
    found = et.compile(text)(W=f"{tmp_path}/m.gguf::blk.*.w", X=x)["X"]
    for w in weights:
        x = x @ w.T
    np.testing.assert_allclose(found, x, rtol=1e-4)


def test_experts_have_two_stars(tmp_path: Path) -> None:
    tensors = {f"l.{a}.e.{b}.w": np.full(3, 10 * a + b, np.float32) for a in (1, 2) for b in range(4)}
    save_file(tensors, str(tmp_path / "m.safetensors"))
    stack = _read(open_source(f"{tmp_path}/m.safetensors::l.*.e.*.w", "x"))
    assert stack.shape == (2, 4, 3) and stack[1, 2, 0] == 22


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    _write(path, {"blk.0.w": (_blocks("Q8_0", (64, 64), 0), "Q8_0"), "blk.2.w": (np.ones(3, np.float32), "F32")})
    for spec, words in (
        (f"{path}::blk.0.v", "did you mean blk.0.w"),
        (f"{path}::blk.*.v", "holds no array 'blk.[*].v'"),
        (f"{path}::blk.*.w", "blk.1.w is missing"),
        (str(path), "holds 2 arrays"),
    ):
        with pytest.raises(BindError, match=words):
            open_source(spec, "x")
    whole_file = path.read_bytes()
    for size, words in ((10, "no .gguf"), (200, "truncated"), (len(whole_file) - 200, "blk.*needs .* bytes")):
        path.write_bytes(whole_file[:size])
        with pytest.raises(StoreError, match=words):
            open_source(f"{path}::blk.0.w", "x")
            open_source(f"{path}::blk.2.w", "x")
    path.write_bytes(b"PK" + whole_file[2:])
    with pytest.raises(StoreError, match="does not begin with GGUF"):
        open_source(f"{path}::blk.0.w", "x")
    with pytest.raises(BindError, match=r"is read, not written"):
        et.compile("input A : f32[n]\nB[i] = A[i]\noutput B")(A=np.ones(3, np.float32), out={"B": str(path)})


def test_a_type_that_is_not_read_names_those_that_are(tmp_path: Path) -> None:
    _write(tmp_path / "m.gguf", {"w": (np.zeros((1, 84), np.uint8), "Q2_K")})
    with pytest.raises(StoreError, match="Q2_K.*Q4_K.*llama-quantize"):
        open_source(f"{tmp_path}/m.gguf", "w")


def test_a_directory_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BindError, match="without a model"):
        open_source(f"{tmp_path}::w", "x")
    tensors = _sharded(tmp_path)
    (tmp_path / "model-00001-of-00003.safetensors").unlink()
    missing = [k for n, k in enumerate(tensors) if n % 3 == 1]
    with pytest.raises(StoreError, match="is in a missing file"):
        open_source(f"{tmp_path}::{missing[0]}", "x")
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(StoreError, match="weight_map"):
        open_source(f"{tmp_path}::norm", "x")


def test_a_file_of_several_arrays_opens_as_a_mapping(tmp_path: Path) -> None:
    raw = {f"blk.{n}.w": (_blocks("Q8_0", (32, 32), n), "Q8_0") for n in range(3)}
    _write(tmp_path / "m.gguf", raw)
    model = et.open(tmp_path / "m.gguf")
    assert list(model) == list(raw) and "blk.1.w" in model
    assert model["blk.*.w"].shape == (3, 32, 32)
    np.testing.assert_array_equal(np.asarray(model["blk.*.w"])[1], np.asarray(model["blk.1.w"]))
    assert model.metadata["tokenizer.ggml.tokens"][:3] == ["a", "bc", "ß"]
    assert model.metadata["some.sizes"] == [1, 2, 3] and model.metadata["some.eps"] == 0.5
    with pytest.raises(BindError, match="did you mean"):
        model["blk.1.v"]
    save_file({"a": np.ones(3, np.float32)}, str(tmp_path / "one.safetensors"), {"by": "me"})
    assert et.open(tmp_path / "one.safetensors").shape == et.open(tmp_path / "one.safetensors")["a"].shape == (3,)
    np.savez(tmp_path / "two.npz", a=np.ones(3), b=np.ones(4))
    assert {k: f.shape for k, f in et.open(tmp_path / "two.npz").items()} == {"a": (3,), "b": (4,)}
