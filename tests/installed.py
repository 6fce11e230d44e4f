"""Packages that tests install: a folder on the path with a module and its entry points."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, module: str, source: str, group: str, entry: str) -> None:
    """Write a module and the metadata that registers ``entry`` in a group of entry points."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
