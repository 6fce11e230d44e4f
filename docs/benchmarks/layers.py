"""Time of EinDecomp's search for a model of 32 layers, relative to one layer: ``plan --parts P``.

    python docs/benchmarks/layers.py [--parts 4 8 16 64] [--layers 32] [--repeat 9]

Each search starts with a new graph and nothing cached; one layer and many alternate. CPU milliseconds, medians and
minima. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from statistics import median

from einturnip.api.inputs import compile_path
from einturnip.compiler import bind
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.partitionings import candidates

EXAMPLES = Path(__file__).parent.parent / "examples"
MODELS = {
    "llama, s = 512, 4 heads": ("models/llama.ein", {"s": 512, "h": 4, "f": 1408, "v": 32000}),
    "llama 7B, s = 512": ("models/llama.ein", {"s": 512, "h": 32, "f": 11008, "v": 32000}),
    "transformer": (
        "machine_learning/transformer.ein",
        {"b": 8, "s": 128, "h": 8, "g": 4, "d": 512, "v": 8192, "f": 1408, "c": 64},
    ),
    "minilm": ("models/minilm.ein", {"b": 32, "s": 128, "d": 384, "f": 1536, "v": 30522, "p": 512}),
    "smollm2": (
        "models/smollm2.ein",
        {"s": 128, "h": 9, "g": 3, "T": 512, "c": 64, "d": 576, "v": 49152, "f": 1536, "q": 576, "k": 192},
    ),
}


def graph(path: str, dims: dict[str, int]) -> EinGraph:
    """A model's graph; no data are needed."""
    return rewrite(bind(compile_path(EXAMPLES / path), {}, dims), None)


def searched(path: str, dims: dict[str, int], parts: int) -> float:
    """CPU seconds of one search."""
    model = graph(path, dims)
    candidates.cache_clear()
    gc.collect()
    began = time.process_time()
    eindecomp(model, parts)
    return time.process_time() - began


def main() -> None:
    """Search every model at every P."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, nargs="+", default=[4, 8, 16, 64])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=9)
    options = parser.parse_args()
    print(f"| model | P | one layer, ms | {options.layers} layers, ms | ratio | least | least | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (path, dims) in MODELS.items():
        for parts in options.parts:
            turns = [
                [searched(path, dims | {"L": layers}, parts) for layers in (1, options.layers)]
                for _ in range(options.repeat)
            ]
            print(f"| {name} | {parts} |", end="")
            for typical in (median, min):
                one, many = (1000 * typical(column) for column in zip(*turns, strict=True))
                print(f" {one:.1f} | {many:.1f} | {many / one:.2f} |", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
