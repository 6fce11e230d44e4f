"""Text from SmolLM2-135M-Instruct, from its GGUF file, within a given memory.

python generate.py SmolLM2-135M-Instruct.Q4_1.gguf "What is the capital of France?" [--memory 320MiB] [--tokens 64]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import einturnip as et
from einturnip.core.units import parse_size

NAMES = {
    "E": "token_embd.weight",
    "gain1": "blk.*.attn_norm.weight",
    "Wq": "blk.*.attn_q.weight",
    "Wk": "blk.*.attn_k.weight",
    "Wv": "blk.*.attn_v.weight",
    "Wo": "blk.*.attn_output.weight",
    "gain2": "blk.*.ffn_norm.weight",
    "W1": "blk.*.ffn_gate.weight",
    "W3": "blk.*.ffn_up.weight",
    "W2": "blk.*.ffn_down.weight",
    "gain": "output_norm.weight",
}
BUCKETS = (64, 256, 1024, 2048)
"""Lengths of the arrays of keys and values: one plan for each that is needed, not one for each token."""

BLOCK, STEP = 64, 8
"""Tokens of the prompt that are read at once; the last block is padded to a whole number of steps."""

MODEL_NBYTES = 60 << 20
"""Bytes of the tokenizer, and of the keys and values of 256 tokens, in addition to einturnip."""


class Model:
    """A GGUF file of a model of the Llama family, with the keys and values of the text so far."""

    def __init__(self, path: str, weights_from: str | None = None, **settings: Any) -> None:
        self.file = et.open(path)
        held = self.file.metadata
        self.metadata = {name: value for name, value in held.items() if not name.startswith("tokenizer")}
        self.tokenizer = Tokenizer(held)
        heads = self.metadata["llama.attention.head_count"]
        program = et.compile(Path(__file__).with_name("smollm2.ein"), dims={"h": heads})
        settings = {name: value for name, value in settings.items() if value is not None}
        weights: dict[str, Any] = {name: self.file[key] for name, key in NAMES.items()}
        weights |= et.open(weights_from) if weights_from else {}
        if not settings:  # without a limit: expand the weights once, not with every token
            weights = {name: np.asarray(file) for name, file in weights.items()}
        weights["base"] = self.metadata["llama.rope.freq_base"]
        weights["eps"] = self.metadata["llama.attention.layer_norm_rms_epsilon"]
        self.session = program.session(data=weights, **settings)
        self.layers = self.metadata["llama.block_count"]
        self.groups = self.metadata["llama.attention.head_count_kv"]
        self.width = self.metadata["llama.rope.dimension_count"]
        self.keys = self.values = np.zeros((self.layers, self.groups, 0, self.width), np.float32)
        self.reset()

    def reset(self) -> None:
        """Forget the text so far; old keys and values stay in the arrays, unread."""
        self.length = 0

    def read(self, tokens: list[int]) -> np.ndarray:
        """Read further tokens, and return the logits of the next one."""
        logits = np.empty(0)
        for at in range(0, len(tokens), BLOCK):
            part = tokens[at : at + BLOCK]
            logits = self._step(part, 1 if len(part) == 1 else -(-len(part) // STEP) * STEP)
        return logits

    def _step(self, tokens: list[int], block: int) -> np.ndarray:
        self._grow(self.length + len(tokens))
        ids = np.zeros(block, np.int32)
        ids[: len(tokens)] = tokens
        found = self.session.step(ids=ids, start=self.length, last=len(tokens) - 1, Kc=self.keys, Vc=self.values)
        stop = self.length + len(tokens)
        self.keys[:, :, self.length : stop] = found["NK"][:, :, : len(tokens)].reshape(
            self.keys[:, :, self.length : stop].shape
        )
        self.values[:, :, self.length : stop] = found["NV"][:, :, : len(tokens)]
        self.length = stop
        return np.asarray(found["logits"])

    def _grow(self, length: int) -> None:
        room = self.keys.shape[2]
        if length <= room:
            return
        larger = next((bucket for bucket in BUCKETS if bucket >= length), None)
        if larger is None:
            raise SystemExit(f"the text is longer than {BUCKETS[-1]} tokens")
        fill = ((0, 0), (0, 0), (0, larger - room), (0, 0))
        self.keys, self.values = np.pad(self.keys, fill), np.pad(self.values, fill)

    def generate(self, prompt: list[int], most: int, temperature: float = 0.0, seed: int = 0) -> Iterator[int]:
        """Tokens after the prompt: the most likely, or random ones if the temperature is above 0."""
        drawn = np.random.default_rng(seed)
        logits = self.read(prompt)
        for _ in range(most):
            if temperature > 0:
                weight = np.exp((logits - logits.max()).astype(np.float64) / temperature)
                token = int(drawn.choice(len(weight), p=weight / weight.sum()))
            else:
                token = int(logits.argmax())
            yield token
            if token == self.tokenizer.end:
                return
            logits = self.read([token])


class Tokenizer:
    """Byte-pair encoding with the vocabulary and the merges of a GGUF file.

    Text is split as for GPT-2, but every digit is a token.
    """

    def __init__(self, metadata: dict[str, Any]) -> None:
        from tokenizers import AddedToken, decoders, models, pre_tokenizers
        from tokenizers import Tokenizer as Encoder

        if metadata.get("tokenizer.ggml.pre") != "smollm":
            raise SystemExit(f"this tokenizer is SmolLM's, not {metadata.get('tokenizer.ggml.pre')!r}")
        words = metadata["tokenizer.ggml.tokens"]
        merges = [tuple(pair.split(" ", 1)) for pair in metadata["tokenizer.ggml.merges"]]
        self.end = metadata["tokenizer.ggml.eos_token_id"]
        self.encoder = Encoder(models.BPE({word: n for n, word in enumerate(words)}, merges))
        special = [word for word, kind in zip(words, metadata["tokenizer.ggml.token_type"], strict=True) if kind == 3]
        self.encoder.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
        digits = pre_tokenizers.Digits(individual_digits=True)
        self.encoder.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.encoder.decoder = decoders.ByteLevel()

    def chat(self, question: str) -> list[int]:
        """A question in the format that the model was trained on."""
        system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        text = (
            f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        )
        return self.plain(text)

    def plain(self, text: str) -> list[int]:
        """The tokens of a text."""
        found: list[int] = self.encoder.encode(text, add_special_tokens=False).ids
        return found

    def text(self, tokens: list[int]) -> str:
        """The text of tokens."""
        said: str = self.encoder.decode(tokens, skip_special_tokens=True)
        return said


def room(memory: str | None) -> int | None:
    """Bytes of the process's memory limit that remain for einturnip."""
    if memory is None:
        return None
    with open("/proc/self/status", encoding="ascii") as status:
        (resident,) = (int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))
    left = parse_size(memory) - resident - MODEL_NBYTES
    if left <= 0:
        raise SystemExit(f"{memory} are less than Python and the model's description take")
    return left


def main() -> None:
    """Answer a question, printing word by word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory")
    parser.add_argument("--arena")
    parser.add_argument("--weights", help="a file of inputs of smollm2.ein, in place of the model's own")
    parser.add_argument("--plain", action="store_true", help="go on with the text, instead of answering it")
    given = parser.parse_args()
    model = Model(given.model, given.weights, memory=room(given.memory), arena=given.arena)
    prompt = model.tokenizer.plain(given.question) if given.plain else model.tokenizer.chat(given.question)
    began, said, tokens, first = time.monotonic(), "", [], 0.0
    for token in model.generate(prompt, given.tokens, given.temperature, given.seed):
        first = first or time.monotonic() - began
        tokens.append(token)
        text = model.tokenizer.text(tokens)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # the bytes of a character are still incomplete
            print(text[len(said) :], end="", flush=True)
            said = text
    rest = time.monotonic() - began - first
    print(f"\n[{len(prompt)} tokens read in {first:.2f} s, then {(len(tokens) - 1) / rest:.1f} written a second]")


if __name__ == "__main__":
    main()
