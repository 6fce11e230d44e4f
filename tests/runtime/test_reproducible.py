"""A reproducible run: the same bits under any schedule, in any memory, by any workers, whatever ran before."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from einturnip.core.errors import CapacityError
from einturnip.eingraph.types import EinsumNode
from einturnip.memgraph.types import OpKind
from einturnip.storage.arrays import array_source
from einturnip.storage.open import open_source
from einturnip.taskgraph.types import TaskKind
from tests.drawn import examples
from tests.runtime.reproducible_cases import PROGRAMS, bits, budgets, data, planned, reference, sources

BUDGETS, WORKERS = range(5), (1, 2, 4)
names = st.sampled_from(sorted(PROGRAMS))


@settings(max_examples=examples(25))
@given(names, st.sampled_from(BUDGETS), st.sampled_from(WORKERS), st.data())
def test_the_bits_do_not_hang_on_schedule_memory_or_workers(name: str, n: int, workers: int, d: st.DataObject) -> None:
    seed = d.draw(st.integers(0, 2**32))
    generator = random.Random(seed)
    assert bits(name, generator.randrange, arena=budgets(name)[n], workers=workers) == reference(name)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_threads_give_the_same_bits(name: str) -> None:
    workers = WORKERS[sorted(PROGRAMS).index(name) % len(WORKERS)]
    assert bits(name, None, arena=budgets(name)[0], workers=workers) == reference(name)


@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_fifty_schedules_five_budgets_three_numbers_of_workers(name: str, budget: int) -> None:
    for workers in WORKERS:
        assert bits(name, None, arena=budgets(name)[budget], workers=workers) == reference(name), workers
        for seed in range(50):
            pick = random.Random(seed).randrange
            assert bits(name, pick, arena=budgets(name)[budget], workers=workers) == reference(name), (workers, seed)


def test_the_programs_spill_and_have_kernels_of_every_sort() -> None:
    """The cases of the tests above differ in the ways that matter."""
    from einturnip.kernels.blas.contraction import ContractionKernel
    from einturnip.kernels.select import machine_code

    spilled, sorts = set(), set()
    for name in PROGRAMS:
        plan = planned(name, arena=budgets(name)[0], workers=2, reproducible=True)
        spilled |= {name} if (plan.memgraph.kind == OpKind.OFFLOAD).any() else set()
        for node in plan.graph.nodes:
            if isinstance(node, EinsumNode):
                coded = any(machine_code(node.einsum, mode) for mode in ("full", "accumulate", "finalize"))
                sorts.add((type(node.einsum).__name__, coded))
    assert len(spilled) >= len(PROGRAMS) // 2 and len(sorts) == 4 and ContractionKernel


def test_without_it_bits_hang_on_the_memory() -> None:
    """The check above can fail: the same numbers summed in other tiles are rounded otherwise."""
    ordinary = partial(bits, "chain", None, reproducible=False, workers=2)
    assert ordinary(arena=budgets("chain")[0] // 3) != ordinary(arena=budgets("chain")[-1])


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_tiles_are_those_of_the_program(name: str) -> None:
    made = [planned(name, arena=b, workers=w, reproducible=True) for b in budgets(name)[::2] for w in (1, 3)]
    assert len({tuple(p.tiles for p in plan.decomposition.partitionings) for plan in made}) == 1
    assert any(
        k in (TaskKind.ACCUMULATE, TaskKind.KERNEL) and n > 1
        for k, n in zip(*np.unique(made[0].taskgraph.kind, return_counts=True), strict=True)
    )
    assert len({sum(isinstance(n, EinsumNode) for n in plan.graph.nodes) for plan in made}) == 1


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_bits_do_not_hang_on_where_the_data_stand(name: str, tmp_path: Path) -> None:
    """Arrays are read in place, or in part, files by tile: rows a wide way apart, odd addresses, axes the other way."""
    _, arrays = data(name)
    placed: dict[str, list[Any]] = {"file": [], "window": [], "odd": [], "turned": []}
    for n, array in arrays.items():
        np.save(tmp_path / f"{n}.npy", array)
        placed["file"].append(open_source(str(tmp_path / f"{n}.npy"), n))
        wide = np.zeros([s + 3 for s in array.shape], array.dtype)
        window = wide[tuple(slice(1, s + 1) for s in array.shape)]
        window[...] = array
        placed["window"].append(array_source(window, n))
        odd = np.zeros(array.nbytes + array.itemsize, np.uint8)[array.itemsize :].view(array.dtype).reshape(array.shape)
        odd[...] = array
        placed["odd"].append(array_source(odd, n))
        placed["turned"].append(array_source(np.asfortranarray(array), n))
    for where, found in placed.items():
        given = dict(zip(arrays, found, strict=True))
        assert bits(name, None, given, arena=budgets(name)[1], workers=2) == reference(name), where
        for source in found:
            source.close()


def test_a_memory_too_small_is_refused_with_the_least_that_would_do() -> None:
    least = budgets("chain")[0]
    planned("chain", arena=least, reproducible=True)
    with pytest.raises(CapacityError, match="the minimum"):
        planned("chain", arena=least // 2, reproducible=True)
    planned("chain", arena=least // 2)


def digests(names: list[str]) -> dict[str, str]:
    """A digest of the programs' results."""
    return {name: sha256(b"".join(reference(name))).hexdigest() for name in names}


def elsewhere(names: list[str], cache: Path, seed: int) -> dict[str, str]:
    """``digests`` in a process of its own, in another order, with its own cache of kernels and its own hashes."""
    call = f"from tests.runtime.test_reproducible import *; print(json.dumps(digests({names[::-1]!r})))"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONHASHSEED": str(seed)}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_another_process_gives_the_same_bits(tmp_path: Path) -> None:
    some = ["softmax", "trained"]
    assert elsewhere(some, tmp_path, 1) == digests(some)  # the cache is cold


@pytest.mark.slow
def test_other_processes_with_a_cold_and_a_warm_cache_give_the_same_bits(tmp_path: Path) -> None:
    every = sorted(PROGRAMS)
    here = digests(every)
    for seed in range(3):
        assert elsewhere(every, tmp_path, seed) == here, seed


def test_what_ran_before_does_not_count() -> None:
    """An ordinary run leaves kernels behind, compiled for what it found long; the next run has its own."""
    for name in ("softmax", "moments"):
        first = reference(name)
        bits(name, None, reproducible=False, arena=budgets(name)[-1], workers=2)
        assert bits(name, None, arena=budgets(name)[-1], workers=2) == first
    assert sources(data("softmax")[1])
