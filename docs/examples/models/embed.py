"""Sentence embeddings by all-MiniLM-L6-v2, and a search by meaning over the lines of a text.

python embed.py MODEL_DIRECTORY SENTENCES.txt "a question" [--memory 256MiB]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import einturnip as et

LAYER = "encoder.layer.*."
NAMES = {
    "word": "embeddings.word_embeddings.weight",
    "position": "embeddings.position_embeddings.weight",
    "kind": "embeddings.token_type_embeddings.weight",
    "gain0": "embeddings.LayerNorm.weight",
    "bias0": "embeddings.LayerNorm.bias",
    "Wq": LAYER + "attention.self.query.weight",
    "bq": LAYER + "attention.self.query.bias",
    "Wk": LAYER + "attention.self.key.weight",
    "bk": LAYER + "attention.self.key.bias",
    "Wv": LAYER + "attention.self.value.weight",
    "bv": LAYER + "attention.self.value.bias",
    "Wo": LAYER + "attention.output.dense.weight",
    "bo": LAYER + "attention.output.dense.bias",
    "gain1": LAYER + "attention.output.LayerNorm.weight",
    "bias1": LAYER + "attention.output.LayerNorm.bias",
    "W1": LAYER + "intermediate.dense.weight",
    "b1": LAYER + "intermediate.dense.bias",
    "W2": LAYER + "output.dense.weight",
    "b2": LAYER + "output.dense.bias",
    "gain2": LAYER + "output.LayerNorm.weight",
    "bias2": LAYER + "output.LayerNorm.bias",
}
BATCH = 64
LONGEST = 256


class Embedder:
    """The model of a directory with ``model.safetensors`` and ``tokenizer.json``, as published."""

    def __init__(self, folder: str | Path, memory: str | int | None = None, arena: str | int | None = None) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.no_padding()
        self.program = et.compile(Path(__file__).with_name("minilm.ein"))
        file = et.open(str(folder))
        self.weights = {name: file[key] for name, key in NAMES.items()}
        if memory is None and arena is None:  # without a limit: read the weights once, not with every batch
            self.weights = {name: np.asarray(weight) for name, weight in self.weights.items()}
        self.settings = {"memory": memory, "arena": arena}

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """A vector of length 1 for each sentence; sentences are batched by length, rounded up to fours."""
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch(sentences)]
        order = sorted(range(len(tokens)), key=lambda n: len(tokens[n]))
        found = np.empty((len(tokens), 384), np.float32)
        for at in range(0, len(order), BATCH):
            batch = order[at : at + BATCH]
            longest = -(-max(len(tokens[n]) for n in batch) // 4) * 4
            ids = np.zeros((len(batch), longest), np.int32)
            for row, n in enumerate(batch):
                ids[row, : len(tokens[n])] = tokens[n]
            length = np.array([len(tokens[n]) for n in batch], np.int32)
            found[batch] = self.program(ids=ids, length=length, **self.weights, **self.settings)["E"]
        return found


def main() -> None:
    """Print the lines nearest to the question in meaning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("sentences")
    parser.add_argument("question")
    parser.add_argument("--memory")
    parser.add_argument("--best", type=int, default=5)
    given = parser.parse_args()
    lines = [line.strip() for line in Path(given.sentences).read_text("utf-8").splitlines() if line.strip()]
    embed = Embedder(given.model, given.memory)
    scores = embed(lines) @ embed([given.question])[0]
    for n in np.argsort(-scores)[: given.best]:
        print(f"{scores[n]:.3f}  {lines[n]}")


if __name__ == "__main__":
    main()
