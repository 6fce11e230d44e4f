"""The layout of a result's file affects its tiling, as that of an input's file does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import einturnip as et
from einturnip.cost.machine import Machine
from einturnip.ir.dtypes import F32
from einturnip.planner import request
from einturnip.storage.formats.zarr_output import _metadata
from einturnip.tiling.file_layout import FileLayout

MAP = "input X : f32[i,j], Y : f32[i,j]\nZ[i,j] = exp(X[i,j]) * Y[i,j]\nS[i] = sum[j] Z[i,j]\noutput Z, S\n"
SIDE, CHUNK = 16_384, 2048


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of chunks that plans are made for, and that nothing reads."""
    folder, described = tmp_path_factory.mktemp("inputs"), _metadata((SIDE, SIDE), F32, (CHUNK, CHUNK))
    for name in "XY":
        (folder / f"{name}.zarr").mkdir()
        (folder / f"{name}.zarr" / "zarr.json").write_text(json.dumps(described))
    return {name: str(folder / f"{name}.zarr") for name in "XY"}


def test_tiles_of_results_lie_in_chunks_of_their_files(inputs: dict[str, str], tmp_path: Path) -> None:
    wide = {}
    for ending in ("npy", "zarr", "zarr::Z"):
        out = {"Z": str(tmp_path / f"z.{ending}")}
        made = et.compile(MAP).plan(arena="64MiB", workers=2, out=out, **inputs)._job.planned
        (z,) = (node for name, node in made.graph.outputs if name == "Z")
        wide[ending] = made.decomposition.output(z).tiles[1]
    assert wide == {"npy": SIDE, "zarr": CHUNK, "zarr::Z": CHUNK}


def test_layouts_are_those_of_inputs_and_of_results_in_chunks() -> None:
    graph = et.compile(MAP).plan(arena="64MiB", dims={"i": SIDE, "j": SIDE}, workers=2)._job.planned.graph
    places = dict(graph.outputs)
    given, chunks = FileLayout((1, 0)), FileLayout((0, 1), (CHUNK, CHUNK))
    x = next(i for i, node in enumerate(graph.nodes) if getattr(node, "name", "") == "X")
    found = request.file_layouts(graph, {"X": given}, {"Z": "some.dir/z.ZARR/", "S": "s.npy"})
    assert found == {x: given, places["Z"]: chunks}
    assert request.file_layouts(graph, {}, {"Z": "Z"}) == {}


def test_writing_is_priced_by_the_chunks_that_a_tile_lies_in() -> None:
    machine, shape, chunks = Machine(), (SIDE, SIDE), FileLayout((0, 1), (CHUNK, CHUNK))
    whole, wide, high = (
        chunks.store_seconds(shape, tile, 4, machine) for tile in ((CHUNK, CHUNK), (256, SIDE), (SIDE, 256))
    )
    assert whole < wide < high
    rows = FileLayout((0, 1))
    assert rows.store_seconds(shape, (256, SIDE), 4, machine) < rows.store_seconds(shape, (SIDE, 256), 4, machine)
