"""``einturnip doctor``: shows and measures this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from einturnip.cli import options
from einturnip.core.units import format_size

if TYPE_CHECKING:
    from einturnip.cost.machine import Machine
    from einturnip.devices.host import BlasInfo


@click.command("doctor")
@click.option(
    "--spill", type=click.Path(path_type=Path), metavar="DIR", help="Folder whose disk is measured. [where runs spill]"
)
@click.option(
    "--calibrate",
    "calibrate_rates",
    is_flag=True,
    help="Measure all rates that predicted times depend on, and store them.",
)
@click.option("--quick", is_flag=True, help="With --calibrate: less exact, in two thirds of the time.")
@click.option(
    "--clean",
    is_flag=True,
    help="Remove incomplete files of killed runs in these folders and in the caches. "
    "[the current folder and the one where runs spill]",
)
@click.option(
    "--device",
    "tested",
    metavar="DEVICE",
    help="Test these devices: a kernel of each kind, copies, and the order of streams. cuda, cuda:1, sim, ...",
)
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path(exists=True, file_okay=False))
@options.debug
def command(
    spill: Path | None,
    calibrate_rates: bool,
    quick: bool,
    clean: bool,
    tested: str | None,
    folders: tuple[str, ...],
) -> None:
    """Show this machine, and measure its arithmetic, memory and disk (some five seconds).

    With --calibrate, measure every rate that predicted times depend on (a minute, on an otherwise idle machine) and
    store them in the user's cache for all later runs. With --clean, remove incomplete files of killed runs; files of
    running processes and of other users are not touched. With --device, compare kernels on that device with the CPU's.
    """
    from einturnip.storage.io.unpublished_file import default_directory

    if quick and not calibrate_rates:
        raise click.UsageError("--quick goes with --calibrate")
    if clean and calibrate_rates:
        raise click.UsageError("give --clean or --calibrate")
    if folders and not clean:
        raise click.UsageError("folders go with --clean")
    if tested is not None:
        _self_test(tested)
        return
    folder = spill or Path(default_directory())
    if clean:
        _clean(folders or (".", str(folder)))
        return
    if calibrate_rates:
        _calibrate(folder, quick)
        return
    for name, line in _findings(folder):
        click.echo(f"{name:<9}{line}")


def _self_test(word: str) -> None:
    """Test the devices of a ``--device`` value."""
    from einturnip.devices.kind import choose
    from einturnip.devices.self_test import self_test

    choice = choose(word)
    for name, line in choice.kind.findings():
        click.echo(f"{name:<9}{line}")
    click.echo(f"{'test':<9}{choice.description}: {self_test(choice)}")


def _calibrate(folder: Path, quick: bool) -> None:
    """Measure the rates and store them."""
    from einturnip.cli.calibrate import calibrate, today
    from einturnip.core.errors import StoreError
    from einturnip.devices.stored import SWITCH, store, stored_path

    if stored_path() is None:
        raise click.UsageError(f"{SWITCH} disables measured rates; unset it to measure them")
    stored = False
    for word, machine in calibrate(folder, quick):
        if machine is None:
            click.echo(f"doubtful {word}" if stored else f"measuring {word} ...", err=True)
            continue
        try:
            path = store(machine, today(), str(folder))
        except OSError as error:
            raise StoreError(f"the rates cannot be stored in {stored_path()}: {error.strerror or error}") from error
        for name, line in _rates(machine):
            click.echo(f"{name:<9}{line}")
        click.echo(f"kept in  {path}")
        stored = True


def _findings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each finding as soon as it is known."""
    import numpy as np

    from einturnip import __version__
    from einturnip.devices.host import host_info
    from einturnip.devices.measure import measure_copy, measure_disk, measure_gemm

    info = host_info()
    yield "version", f"einturnip {__version__}, NumPy {np.__version__}"
    yield "cpu", info.cpu
    yield "cores", f"{info.cores} usable"
    yield "vectors", ", ".join(info.flags) or "none known"
    yield "memory", f"{format_size(info.available_nbytes)} free of {format_size(info.memory_nbytes)}"
    for library in info.blas:
        yield "blas", _blas(library)
    yield from _devices()
    for dtype in ("float32", "float64"):
        one_core = measure_gemm(dtype)
        all_cores = measure_gemm(dtype, n=1024, threads=info.cores)
        yield "product", f"{dtype}: {one_core / 1e9:.0f} GFLOP/s on one core, {all_cores / 1e9:.0f} on {info.cores}"
    yield from _peaks(info.cores)
    yield "copy", f"{measure_copy() / 1e9:.1f} GB/s by one core"
    rates = measure_disk(folder)
    yield from _stored_rates()
    yield from _caches()
    cached = "" if rates.direct else " (through the cache: this file system has no direct reads)"
    yield "disk", f"{folder}: read {rates.read / 1e9:.2f} GB/s{cached}, write {rates.write / 1e9:.2f} GB/s"


def _peaks(cores: int) -> Iterator[tuple[str, str]]:
    """Yield the peak arithmetic rates, if the LLVM kernels that measure them are available."""
    from einturnip.devices.peaks import measure_peak
    from einturnip.ir.dtypes import F32, F64
    from einturnip.kernels.llvm.peak import OPERATIONS

    for dtype in (F32, F64):
        found = {name: measure_peak(name, dtype, cores) for name in OPERATIONS}
        if all(found.values()):
            peaks = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in found.items())
            yield "peaks", f"{dtype.numpy.name}: {peaks} GFLOP/s on {cores} cores"


def _devices() -> Iterator[tuple[str, str]]:
    """Yield the usable devices, or the reason why there are none, with a remedy."""
    from einturnip.core.errors import DeviceError
    from einturnip.devices import kind as kinds
    from einturnip.devices.kind import choose

    for name in kinds.names():
        try:
            kind = kinds.find(name)
        except DeviceError as error:
            yield name, f"none: {error}"
        else:
            yield from () if kind is None else kind.findings()
    yield "", f"--device auto takes {choose('auto').name}"


def _stored_rates() -> Iterator[tuple[str, str]]:
    """Yield the stored rates, or the reason why there are none."""
    from einturnip.devices.stored import read_stored

    found = read_stored()
    if found.machine is None:
        yield "rates", f"built-in ones; measured: {found.word}. help: einturnip doctor --calibrate"
        return
    yield "rates", f"measured {found.measured}, with files in {found.folder} ({found.path})"
    yield from _rates(found.machine)


def _caches() -> Iterator[tuple[str, str]]:
    """Yield the contents of each cache, and the number of its unusable entries."""
    from einturnip.caches import CACHES, cache_folder

    for cache in CACHES:
        path = cache.path()
        if cache.file:  # the calibrated rates have lines of their own
            continue
        if path is None:
            why = f"{cache.switch} says so" if cache_folder() else "the cache folder belongs to another user"
            yield "cache", f"{cache.name}: not used: {why}"
            continue
        entries = cache.entries()
        size, bound = format_size(sum(entry.nbytes for entry in entries)), format_size(cache.max_nbytes)
        bad = sum(not cache.is_valid(entry.name) for entry in entries)
        peaks = f"; {bad} damaged or not this user's alone, which are not used" if bad else ""
        yield "cache", f"{cache.name}: {len(entries)}, {size} of {bound}{peaks} ({path})"


def _clean(folders: Iterable[str]) -> None:
    """Remove incomplete files of killed runs, and damaged cache entries."""
    import os

    from einturnip.caches import CACHES
    from einturnip.core.regular_files import remove_abandoned

    removed = []
    for folder in dict.fromkeys(map(os.path.realpath, folders)):
        removed += remove_abandoned(folder)
    for cache in CACHES:
        removed += cache.remove_abandoned()
        for entry in cache.entries():
            if not cache.is_valid(entry.name) and cache.remove(entry.name):
                removed.append(os.path.join(cache.path() or "", entry.name))
    for path in removed:
        click.echo(f"removed  {path}")
    if not removed:
        click.echo("nothing to remove")


def _rates(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield the most important rates."""
    flops = ", ".join(
        f"{dtype} {2e-9 * n**3 / machine.product_seconds(dtype, n, n, n):.0f}"
        for n in (512,)
        for dtype in ("float32", "float64")
    )
    yield "", f"products of 512 on each of {machine.workers} workers: {flops} GFLOP/s"
    yield (
        "",
        f"copying on each worker {machine.memory_bandwidth / 1e9:.1f} GB/s; an op {machine.op_latency * 1e6:.0f} us",
    )
    rates = (
        ("read", machine.read_bandwidth),
        ("cached", machine.cached_bandwidth),
        ("into the processor's cache", machine.near_bandwidth),
        ("written", machine.write_bandwidth),
        ("from spill", machine.spill_read),
        ("to spill", machine.spill_write),
    )
    yield "", "files: " + ", ".join(f"{name} {rate / 1e9:.2f}" for name, rate in rates) + " GB/s"


def _blas(library: BlasInfo) -> str:
    use = "" if library.called else "; not used for tiles"
    return f"{library.name} {library.version} for {library.core}, {library.threads} threads{use}"
