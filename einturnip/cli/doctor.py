"""``einturnip doctor``: what this machine has, measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from einturnip.cli import options
from einturnip.core.settings import format_size

if TYPE_CHECKING:
    from einturnip.devices.host import BlasInfo


@click.command("doctor")
@click.option(
    "--spill", type=click.Path(path_type=Path), metavar="DIR", help="Folder whose disk is measured. [where runs spill]"
)
@options.debug
def command(spill: Path | None) -> None:
    """Show what this machine has, and measure its arithmetic, memory and disk (some five seconds)."""
    from einturnip.stores.temporary import default_directory

    folder = spill or Path(default_directory())
    for name, line in _findings(folder):
        click.echo(f"{name:<9}{line}")


def _findings(folder: Path) -> Iterator[tuple[str, str]]:
    """What to tell, as (name, text), each as soon as it is known."""
    import numpy as np

    from einturnip import __version__
    from einturnip.devices.host import host_info, measure_copy, measure_disk, measure_gemm

    info = host_info()
    yield "version", f"einturnip {__version__}, NumPy {np.__version__}"
    yield "cpu", info.cpu
    yield "cores", f"{info.cores} usable"
    yield "vectors", ", ".join(info.flags) or "none known"
    yield "memory", f"{format_size(info.available_nbytes)} free of {format_size(info.memory_nbytes)}"
    for library in info.blas:
        yield "blas", _blas(library)
    for dtype in ("float32", "float64"):
        one = measure_gemm(dtype)
        every = measure_gemm(dtype, n=1024, threads=info.cores)
        yield "product", f"{dtype}: {one / 1e9:.0f} GFLOP/s on one core, {every / 1e9:.0f} on {info.cores}"
    yield "copy", f"{measure_copy() / 1e9:.1f} GB/s by one core"
    rates = measure_disk(folder)
    cached = "" if rates.direct else " (through the cache: this file system has no direct reads)"
    yield "disk", f"{folder}: read {rates.read / 1e9:.2f} GB/s{cached}, write {rates.write / 1e9:.2f} GB/s"


def _blas(library: BlasInfo) -> str:
    use = "" if library.called else "; not the one that tiles are multiplied with"
    return f"{library.name} {library.version} for {library.core}, {library.threads} threads{use}"
