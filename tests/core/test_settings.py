"""Sizes as people write them, and the memory that is free."""

import pytest

from einturnip.core.errors import BindError
from einturnip.core.settings import available_nbytes, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("512MB", 512_000_000),
        ("2GiB", 2 << 30),
        ("1.5 gib", 3 << 29),
        ("64kib", 65536),
        ("4096", 4096),
        ("10B", 10),
        (".5kB", 500),
        (77, 77),
    ],
)
def test_sizes_that_are(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "GiB", "2G", "-1MiB", "0", "2 Gigs", "1e9", "0.1B", "twelve", "1MiB 2"])
def test_sizes_that_are_not(text):
    with pytest.raises(BindError, match="size|unit"):
        parse_size(text)


def test_a_size_that_may_mean_two_things_shows_both():
    with pytest.raises(BindError, match="write 2GiB or 2GB"):
        parse_size("2G")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (10 << 20, "10.0 MiB"),
        (200 << 30, "200 GiB"),
        (1 << 42, "4.00 TiB"),
    ],
)
def test_sizes_are_shown_short(nbytes, text):
    assert format_size(nbytes) == text


def machine(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return available_nbytes(root)


MEMINFO = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n"}


def test_free_memory_is_the_machines_where_no_group_bounds_it(tmp_path):
    assert machine(tmp_path, MEMINFO) == 8000 * 1024


def test_free_memory_is_the_tightest_groups(tmp_path):
    group = "sys/fs/cgroup/a"
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        f"{group}/memory.max": "1000000",
        f"{group}/memory.current": "400000",
        f"{group}/memory.stat": "anon 1\ninactive_file 100000\n",
        f"{group}/b/memory.max": "max",
    }
    assert machine(tmp_path, MEMINFO | files) == 700_000


def test_free_memory_in_a_group_of_version_one(tmp_path):
    group = "sys/fs/cgroup/memory/a"
    files = {
        "proc/self/cgroup": "5:cpu:/a\n4:memory,x:/a\n",
        f"{group}/memory.limit_in_bytes": "500000",
        f"{group}/memory.usage_in_bytes": "400000",
        f"{group}/memory.stat": "total_inactive_file 0\n",
    }
    assert machine(tmp_path, MEMINFO | files) == 100_000


def test_free_memory_without_a_proc_is_still_a_number(tmp_path):
    assert available_nbytes(tmp_path) > 0
