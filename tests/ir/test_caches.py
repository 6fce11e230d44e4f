"""Cache entries: read as they were written under their key, by this user alone, and refused otherwise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einturnip import caches
from einturnip.caches import CACHES, KERNELS, PLANS, DamagedEntry, ForeignEntry
from einturnip.core.regular_files import is_temporary, temporary_path

ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for cache in CACHES:
        if cache.switch:
            monkeypatch.delenv(cache.switch, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "einturnip"


def put(name: str = "a.o", data: bytes = b"data" * 50, cache: caches.Cache = KERNELS) -> Path:
    cache.write({name: [data[:7], memoryview(data[7:])]})
    assert cache.read(name) == data
    return Path(cache.path() or "") / name


def test_what_is_written_is_read_and_private(root: Path) -> None:
    path = put()
    assert {p.name: p.stat().st_mode & 0o777 for p in (root, path.parent, path)} == {
        "einturnip": 0o700,
        "kernels": 0o700,
        "a.o": 0o600,
    }
    with pytest.raises(FileNotFoundError):
        KERNELS.read("b.o")
    assert put(data=b"") and put(data=b"more") and [entry.name for entry in KERNELS.entries()] == ["a.o"]


@given(st.data())
def test_every_flipped_bit_and_every_missing_byte_is_found(data: st.DataObject) -> None:
    path = put()
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[at] ^ 1 << data.draw(st.integers(0, 7))
    for held in (whole[:at], bytes([*whole[:at], flipped, *whole[at + 1 :]]), whole + whole[:at] + b"."):
        path.write_bytes(held)
        with pytest.raises(DamagedEntry):
            KERNELS.read("a.o")
        assert not KERNELS.is_valid("a.o")
    put()


def test_a_file_in_the_place_of_another_is_refused(root: Path) -> None:
    first, second = put("a.o", b"1"), put("b.o", b"2")
    foreign = put("a.o", b"3", PLANS)
    for other in (second, foreign):
        first.write_bytes(other.read_bytes())
        with pytest.raises(DamagedEntry):
            KERNELS.read("a.o")
    assert KERNELS.read("b.o") == b"2"


@pytest.mark.timeout(30)
def test_what_is_no_file_is_refused_and_replaced_without_waiting(root: Path) -> None:
    path = put()
    aside = path.with_name("aside")
    path.rename(aside)
    os.mkfifo(path)
    with pytest.raises(ForeignEntry, match="regular"):
        KERNELS.read("a.o")
    put()
    path.unlink()
    for target in (aside, Path("/dev/zero"), Path("nowhere")):
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        with pytest.raises(OSError):
            KERNELS.read("a.o")
    put()
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedEntry):
        KERNELS.read("a.o")
    with pytest.raises(OSError):
        put()
    assert not [name for name in os.listdir(path.parent) if is_temporary(name)]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_others_can_write_to_is_refused_and_replaced(mode: int) -> None:
    path = put()
    path.chmod(mode)
    with pytest.raises(ForeignEntry, match="other users"):
        KERNELS.read("a.o")
    assert put().stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_what_belongs_to_another_user_is_not_used(root: Path) -> None:
    path = put()
    os.chown(path, 65534, 65534)
    with pytest.raises(ForeignEntry, match="another user"):
        KERNELS.read("a.o")
    assert put().stat().st_uid == 0
    os.chown(root, 65534, 65534)
    assert KERNELS.path() is None and KERNELS.entries() == []
    with pytest.raises(FileNotFoundError):
        KERNELS.read("a.o")
    with pytest.raises(OSError):
        KERNELS.write({"a.o": [b""]})


def test_an_open_cache_folder_is_closed_and_a_folder_that_the_user_names_is_not(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "kernels").mkdir(parents=True)
    root.chmod(0o777)
    (root / "kernels").chmod(0o755)
    put()
    assert root.stat().st_mode & 0o777 == (root / "kernels").stat().st_mode & 0o777 == 0o700
    named = tmp_path / "named"
    named.mkdir(mode=0o755)
    monkeypatch.setenv(PLANS.switch, str(named))
    put("key/a.plan", cache=PLANS)
    assert named.stat().st_mode & 0o777 == 0o755 and (named / "key").stat().st_mode & 0o777 == 0o700


def test_without_a_home_or_with_a_relative_one_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert KERNELS.path() == "/home/someone/.cache/einturnip/kernels"
    monkeypatch.setenv("HOME", "not/absolute")
    assert KERNELS.path() is None


def test_entries_that_are_too_large_are_neither_written_nor_read() -> None:
    small = replace(KERNELS, max_entry_nbytes=10)
    small.write({"a.o": [b"1" * 11]})
    assert small.entries() == []
    put("a.o", b"1" * 11)
    with pytest.raises(DamagedEntry):
        small.read("a.o")


def test_those_used_longest_ago_are_given_up(root: Path) -> None:
    small = replace(KERNELS, max_files=2)
    for k, name in enumerate("abcd"):
        os.utime(put(f"{name}.o"), (k, k))
    living = put("e.o")
    small.touch("a.o")
    gone = Path(temporary_path(str(living)))
    gone.touch()
    small.prune()
    assert sorted(os.listdir(root / "kernels")) == ["a.o", "e.o"]


def test_each_cache_has_a_place_and_a_bound_of_its_own() -> None:
    assert len({cache.name for cache in CACHES}) == len({cache.path() for cache in CACHES}) == len(CACHES)
    assert all(cache.max_entry_nbytes <= cache.max_nbytes and cache.key and cache.holds for cache in CACHES)
    put("key/1-2-3-4.plan", cache=PLANS)
    put("x.program", cache=caches.PROGRAMS)
    assert [entry.name for entry in PLANS.entries()] == ["key/1-2-3-4.plan"]


def test_threads_and_processes_write_the_same_key_at_once(root: Path) -> None:
    text = "import sys; from einturnip.caches import KERNELS\nfor _ in range(40): KERNELS.write({'a.o': [b'x' * 9999]})"
    processes = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(2)]
    KERNELS.write({"a.o": [b"x" * 9999]})
    wrong = []

    def check() -> None:
        wrong.extend(KERNELS.read("a.o") != b"x" * 9999 for _ in range(200))

    threads = [threading.Thread(target=check) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0]
    assert len(wrong) == 400 and not any(wrong)
    assert os.listdir(root / "kernels") == ["a.o"]


def test_entries_are_synced_before_they_are_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("sync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("rename"), rename(a, b)))
    put()
    assert done == ["sync", "rename"]


def test_a_disk_that_is_full_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        KERNELS.write({"a.o": [b"data"]})
    assert os.listdir(root / "kernels") == []


def test_all_caches_are_in_the_table() -> None:
    """No other module asks for the cache's folder."""
    package = Path(caches.__file__).parent
    other = [p for p in package.rglob("*.py") if p.name != "caches.py"]
    assert [str(p) for p in other if re.search(r"XDG_CACHE_HOME|[\"']\.cache|mkstemp", p.read_text("utf-8"))] == []
