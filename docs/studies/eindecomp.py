"""Bytes between P devices: EinDecomp and the schemes that people use by hand.

    python docs/studies/eindecomp.py [--write]

``--write`` stores the numbers in eindecomp.json, the picture in eindecomp.svg and the tables in eindecomp.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from charts import Panel, svg
from einturnip.eingraph.build.program import build
from einturnip.eingraph.rewrite.passes import rewrite
from einturnip.eingraph.types import EinGraph
from einturnip.lang import compile_text
from einturnip.tiling.baselines import along_axes, baselines
from einturnip.tiling.eindecomp import eindecomp
from einturnip.tiling.movement import moved
from einturnip.tiling.types import Decomposition
from pages import Numbers, write

PAGE = Path(__file__).with_suffix(".md")
PROGRAMS = Path(__file__).parent / "programs"
CHAIN = Path(__file__).parents[1] / "examples" / "models" / "matrix_chain.ein"
SITES = (2, 4, 8, 16, 32, 64)
STUDIES = {
    "square chain": (CHAIN, dict.fromkeys("ijklm", 8192)),
    "skewed chain": (CHAIN, {"i": 81920, "j": 820, "k": 81920, "l": 820, "m": 81920}),
    "FFNN training": (PROGRAMS / "ffnn_training.ein", {}),
    "Llama layer": (PROGRAMS / "llama_layer.ein", {}),
}
# Axes of inputs where the roles of labels cannot be derived, since gradients sum over samples too.
AXES = {
    "FFNN training": {
        "data parallel": ((("X", 0),), False),
        "tensor parallel": ((("W1", 1), ("W2", 0)), True),
    }
}


@cache
def graph_of(name: str) -> EinGraph:
    """The graph of a study's program."""
    path, dims = STUDIES[name]
    return rewrite(build(compile_text(path.read_text(), path.name), {}, dims, {}), None)


def decompositions(name: str, sites: int) -> dict[str, Decomposition]:
    """EinDecomp's decomposition and those by hand."""
    graph = graph_of(name)
    found = {"EinDecomp": eindecomp(graph, sites)}
    found |= {b.name: b.decomposition for b in baselines(graph, sites)}
    return found | {s: along_axes(graph, axes, sites, by) for s, (axes, by) in AXES.get(name, {}).items()}


def gigabytes(name: str, sites: int) -> dict[str, float | None]:
    """Gigabytes moved by each scheme; None if a label is too short for as many devices."""
    found = decompositions(name, sites)
    calls = found["EinDecomp"].kernel_calls
    return {s: round(moved(d).total / 1e9, 3) if d.kernel_calls >= calls else None for s, d in found.items()}


def tables(numbers: Numbers) -> Iterator[str]:
    """The lines of the page's tables."""
    for name, by_sites in numbers.items():
        yield from ("", f"### {name}", "", f"| GB between P devices | {' | '.join(by_sites)} |")
        yield f"|---|{'---|' * len(by_sites)}"
        for scheme in by_sites["2"]:
            cells = (f"{found[scheme]:.2f}" if found[scheme] is not None else "-" for found in by_sites.values())
            yield f"| {scheme} | {' | '.join(cells)} |"


def picture(numbers: Numbers) -> str:
    """Gigabytes by P, both logarithmic."""
    panels = [
        Panel(
            name,
            {s: [(p, found[s]) for p, found in by_sites.items() if found[s]] for s in by_sites["2"]},
            log=True,
        )
        for name, by_sites in numbers.items()
    ]
    return svg([panels[:2], panels[2:]], "gigabytes moved between P devices, by P")


def main() -> None:
    """Count, print, store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = {name: {str(p): gigabytes(name, p) for p in SITES} for name in STUDIES}
    print("\n".join(tables(found)))
    if options.write:
        write(PAGE, found, tables(found), picture(found))


if __name__ == "__main__":
    main()
