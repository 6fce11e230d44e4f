"""Fine-tunes SmolLM2 on a text, from its GGUF file, within a given memory; writes the adapter.

python lora.py SmolLM2-135M-Instruct.Q4_1.gguf TEXT.txt --memory 512MiB [--steps 100] [--save adapter.safetensors]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from generate import NAMES, Tokenizer, room

import einturnip as et

HERE = Path(__file__).parent
LEARNED = ("Aq", "Av", "Bq", "Bv")
CHANGED = ("Wq", "Wv")


def windows(tokens: list[int], length: int, steps: int, seed: int) -> np.ndarray:
    """Windows of a text, one for each step: ``length`` tokens and the next one."""
    if len(tokens) <= length:
        raise SystemExit(f"the text has {len(tokens)} tokens: more than {length} are needed")
    starts = np.random.default_rng(seed).integers(0, len(tokens) - length, steps)
    return np.asarray(tokens, np.int32)[starts[:, None] + np.arange(length + 1)]


class LoRA:
    """A session of ``lora.ein``: a model's file, and the additions to its weights, initially zero."""

    def __init__(self, path: str, rank: int = 32, seed: int = 0, rate: float = 5e-4, **settings: Any) -> None:
        self.file = et.open(path)
        held = self.file.metadata
        program = et.compile(HERE / "lora.ein", dims={"h": held["llama.attention.head_count"]})
        data: dict[str, Any] = {name: self.file[key] for name, key in NAMES.items()}
        data["base"], data["eps"] = held["llama.rope.freq_base"], held["llama.attention.layer_norm_rms_epsilon"]
        data["alpha"], data["lr"] = float(rank), rate
        drawn, width = np.random.default_rng(seed), data["E"].shape[1]
        for name in ("Aq", "Av"):
            first = drawn.standard_normal((held["llama.block_count"], rank, width), np.float32)
            data[name] = first / np.float32(np.sqrt(width))
        self.alpha = data["alpha"]
        self.settings = {name: value for name, value in settings.items() if value is not None}
        self.session = program.session(data=data, **self.settings)

    def step(self, ids: np.ndarray) -> float:
        """Learn from a window; returns the loss before."""
        return float(self.session.step(ids=ids)["loss"])

    def save(self, adapter: str, merged: str) -> None:
        """Write the additions, and the changed weights; ends the session."""
        data: dict[str, Any] = {name: self.session.state(name) for name in LEARNED}
        self.session.close()
        data |= {name: self.file[NAMES[name]] for name in CHANGED} | {"alpha": self.alpha}
        out = {name: f"{adapter}::{name}" for name in LEARNED} | {name: f"{merged}::{name}" for name in CHANGED}
        et.compile(HERE / "lora_merge.ein")(data=data, out=out, **self.settings)


def main() -> None:
    """Fine-tune, and write the adapter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--memory")
    parser.add_argument("--arena")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--window", type=int, default=64, help="tokens that are read in a step")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", default="adapter.safetensors", help="what was learned")
    parser.add_argument("--merged", default="merged.safetensors", help="the weights that it changes")
    given = parser.parse_args()
    tokenizer = Tokenizer(et.open(given.model).metadata)
    tokens = tokenizer.plain(Path(given.text).read_text())
    parts = windows(tokens, given.window, given.steps, given.seed)
    del tokenizer
    memory = room(given.memory)
    lora = LoRA(given.model, given.rank, given.seed, given.rate, memory=memory, arena=given.arena)
    for number, part in enumerate(parts, 1):
        began = time.monotonic()
        loss = lora.step(part)
        print(f"step {number}: loss {loss:.4f}, {time.monotonic() - began:.2f} s", flush=True)
    lora.save(given.save, given.merged)


if __name__ == "__main__":
    main()
