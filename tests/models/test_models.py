"""The programs of docs/examples/models on small random models, compared with NumPy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "models"
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefgh", "ab", "abc", "Ċ", "Ġ"]
D, HEADS, GROUPS, WIDTH, F, LAYERS = 32, 4, 2, 16, 64, 2
Q, KV = HEADS * WIDTH, GROUPS * WIDTH


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _weights() -> dict[str, tuple[np.ndarray, str]]:
    """Every matrix in Q8_0 but one; norms in f32."""
    rng = np.random.default_rng(0)
    shapes = {"attn_q": (Q, D), "attn_k": (KV, D), "attn_v": (KV, D), "attn_output": (D, Q)}
    shapes |= {"ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F)}
    made = {
        "token_embd.weight": (rng.standard_normal((len(WORDS), D)), "Q8_0"),
        "output_norm.weight": (np.ones(D), "F32"),
    }
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            made[f"blk.{layer}.{name}.weight"] = (1 + 0.1 * rng.standard_normal(D), "F32")
        for name, shape in shapes.items():
            kind = "F16" if (layer, name) == (1, "attn_v") else "Q8_0"
            made[f"blk.{layer}.{name}.weight"] = (0.3 * rng.standard_normal(shape), kind)
    return {name: (array.astype(np.float32), kind) for name, (array, kind) in made.items()}


def _gguf(path: Path) -> dict[str, np.ndarray]:
    """A model in a file, and its weights as they are read back."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b", "ab c"])
    writer.add_eos_token_id(2)
    read = {}
    for name, (array, kind) in _weights().items():
        number = gguf.GGMLQuantizationType[kind]
        packed = gguf.quants.quantize(array, number)
        read[name] = gguf.quants.dequantize(packed, number)
        writer.add_tensor(name, packed, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


def _norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def _turned(x: np.ndarray) -> np.ndarray:
    """Adjacent pairs of x[s, heads, width] as complex numbers, turned."""
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-2 * np.arange(WIDTH // 2) / WIDTH)
    pairs = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


def _logits(weights: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """The token that follows the last of the ids."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    x, n = w["token_embd.weight"][ids], len(ids)
    for layer in range(LAYERS):
        block = {name: w[f"blk.{layer}.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        a = _norm(x, w[f"blk.{layer}.attn_norm.weight"])
        q = _turned((a @ block["attn_q"].T).reshape(n, HEADS, WIDTH))
        k = _turned((a @ block["attn_k"].T).reshape(n, GROUPS, WIDTH)).repeat(HEADS // GROUPS, 1)
        v = (a @ block["attn_v"].T).reshape(n, GROUPS, WIDTH).repeat(HEADS // GROUPS, 1)
        s = np.einsum("shc,thc->hst", q, k) / np.sqrt(WIDTH)
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hst,thc->shc", p, v).reshape(n, Q) @ block["attn_output"].T
        a = _norm(x, w[f"blk.{layer}.ffn_norm.weight"])
        gate, up, down = (w[f"blk.{layer}.ffn_{name}.weight"] for name in ("gate", "up", "down"))
        z = a @ gate.T
        x = x + (z / (1 + np.exp(-z)) * (a @ up.T)) @ down.T
    return _norm(x[-1], w["output_norm.weight"]) @ w["token_embd.weight"].T


@pytest.mark.parametrize("settings", [{}, {"arena": "256KiB"}])
def test_a_model_reads_and_writes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    script = _script("generate")
    monkeypatch.setattr(script, "BUCKETS", (8, 16))
    monkeypatch.setattr(script, "BLOCK", 4)
    monkeypatch.setattr(script, "STEP", 2)
    weights = _gguf(tmp_path / "m.gguf")
    model = script.Model(str(tmp_path / "m.gguf"), **settings)
    prompt = [3, 11, 5, 7, 12, 4]  # a block and a half
    np.testing.assert_allclose(model.read(prompt), _logits(weights, prompt), atol=1e-4)
    ids = list(prompt)
    for token in (6, 2, 9):  # over the first bucket's end
        ids.append(token)
        np.testing.assert_allclose(model.read([token]), _logits(weights, ids), atol=1e-4)
    model.reset()
    model.tokenizer.end = -1
    greedy, ids = list(model.generate(prompt, 3)), list(prompt)
    for token in greedy:
        assert token == _logits(weights, ids).argmax()
        ids.append(token)
    model.reset()
    drawn = list(model.generate(prompt, 3, temperature=5.0, seed=1))
    model.reset()
    assert drawn == list(model.generate(prompt, 3, temperature=5.0, seed=1)) != greedy


def test_the_vocabulary_of_a_file(tmp_path: Path) -> None:
    script = _script("generate")
    _gguf(tmp_path / "m.gguf")
    tokenizer = script.Model(str(tmp_path / "m.gguf"), arena="256KiB").tokenizer
    ids = tokenizer.encoder.encode("abcab<|im_end|>b").ids
    assert [WORDS[n] for n in ids] == ["abc", "ab", "<|im_end|>", "b"]
    assert tokenizer.text(ids) == "abcabb"


def _bert(path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    d, f = 384, 64
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (40, d),
        "embeddings.position_embeddings.weight": (16, d),
        "embeddings.token_type_embeddings.weight": (2, d),
        "embeddings.LayerNorm.weight": (d,),
        "embeddings.LayerNorm.bias": (d,),
    }
    for layer in range(2):
        for name, shape in {
            "attention.self.query": (d, d),
            "attention.self.key": (d, d),
            "attention.self.value": (d, d),
            "attention.output.dense": (d, d),
            "attention.output.LayerNorm": (d,),
            "intermediate.dense": (f, d),
            "output.dense": (d, f),
            "output.LayerNorm": (d,),
        }.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
    tensors = {name: (0.2 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, str(path / "model.safetensors"))
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2} | {letter: 3 + n for n, letter in enumerate("abcdefgh")}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer.save(str(path / "tokenizer.json"))
    return tensors


def _embedding(w: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    from math import erf

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(x @ w[name + ".weight"].T + w[name + ".bias"])

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        return np.asarray(
            x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[name + ".weight"] + w[name + ".bias"]
        )

    words, places = w["embeddings.word_embeddings.weight"], w["embeddings.position_embeddings.weight"]
    x = norm(words[ids] + places[: len(ids)] + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(2):
        at = f"encoder.layer.{layer}."
        q, k, v = (
            linear(x, f"{at}attention.self.{name}").reshape(len(ids), 12, 32) for name in ("query", "key", "value")
        )
        p = np.exp(np.einsum("shc,thc->hst", q, k) / np.sqrt(32))
        p /= p.sum(-1, keepdims=True)
        a = np.einsum("hst,thc->shc", p, v).reshape(len(ids), 384)
        x = norm(x + linear(a, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        f = linear(x, at + "intermediate.dense")
        f = f * 0.5 * (1 + np.vectorize(erf)(f / np.sqrt(2)))
        x = norm(x + linear(f, at + "output.dense"), at + "output.LayerNorm")
    mean = x.mean(0)
    return np.asarray(mean / np.sqrt(mean @ mean))


@pytest.mark.parametrize("settings", [{}, {"arena": "2MiB"}])
def test_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    script = _script("embed")
    monkeypatch.setattr(script, "BATCH", 2)
    w = {name: array.astype(np.float64) for name, array in _bert(tmp_path).items()}
    sentences = ["a b c d e f", "a b c d e", "d e f g h a", "h"]
    found = script.Embedder(tmp_path, **settings)(sentences)
    for sentence, vector in zip(sentences, found, strict=True):
        ids = [1, *(3 + ord(letter) - ord("a") for letter in sentence.split()), 2]
        np.testing.assert_allclose(vector, _embedding(w, ids), atol=1e-5)
