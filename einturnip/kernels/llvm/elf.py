"""Loader of object files: lays out sections in memory and applies relocations, without a linker.

Only x86-64 ELF is supported. Source: System V ABI, AMD64 supplement, section 4.4 (relocation).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ALLOC, _NOBITS, _SYMTAB, _RELA, _UNDEFINED = 2, 8, 2, 4, 0
_ABS64, _PC32, _PLT32 = 1, 2, 4
_STUB = 16  # jmp [rip + 2]; the address


class Unloadable(Exception):
    """Raised for an object file that the loader does not support."""


class _Section(NamedTuple):
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


@dataclass(frozen=True)
class LoadedCode:
    """Machine code in memory; ``memory`` keeps it alive."""

    memory: mmap.mmap
    address: int


def load(data: bytes, name: str) -> LoadedCode:
    """Load the function ``name`` of an object file.

    Raises:
        Unloadable: the file is not for x86-64, or uses features or functions that are not available.
    """
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18)[0] != 62:
        raise Unloadable("no object file of x86-64")
    header = _HEADER.unpack_from(data)
    sections = []
    for k in range(header[12]):
        _, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(data, header[6] + k * header[11])
        sections.append(_Section(kind, flags, offset, size, link, info, align))
    places, end = {}, 0
    for k, section in enumerate(sections):
        if section.flags & _ALLOC:
            end = -(-end // max(64, section.align)) * max(64, section.align)
            places[k] = end
            end += section.size
    table = next((s for s in sections if s.kind == _SYMTAB), None)
    if table is None:
        raise Unloadable("no symbols")
    symbols = list(_symbols(data, table, sections[table.link]))
    outside = sorted({s[0] for s in symbols if s[1] == _UNDEFINED and s[0]})
    stubs = {text: end + 64 + _STUB * k for k, text in enumerate(outside)}
    memory = mmap.mmap(-1, max(1, end + 64 + _STUB * len(outside)), prot=mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for k, place in places.items():
        section = sections[k]
        if section.kind != _NOBITS:
            memory[place : place + section.size] = data[section.offset : section.offset + section.size]
    for text, place in stubs.items():
        memory[place : place + _STUB] = b"\xff\x25\x02\x00\x00\x00\x66\x90" + struct.pack("<Q", _outside(text))
    for section in sections:
        if section.kind == _RELA and section.info in places:
            _relocate(memory, base, places, section, symbols, stubs, data)
    entry = next((places[s] + value for text, s, value in symbols if text == name and s in places), None)
    if entry is None:
        raise Unloadable(f"no function {name}")
    _make_executable(base, len(memory))
    return LoadedCode(memory, base + entry)


def _symbols(data: bytes, table: _Section, names: _Section) -> Iterator[tuple[str, int, int]]:
    """Yield (name, section, value) of each symbol."""
    for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
        text, _, _, section, value, _ = _SYMBOL.unpack_from(data, at)
        begin = names.offset + text
        yield data[begin : data.index(b"\0", begin)].decode(), section, value


def _relocate(
    memory: mmap.mmap,
    base: int,
    places: dict[int, int],
    section: _Section,
    symbols: list[tuple[str, int, int]],
    stubs: dict[str, int],
    data: bytes,
) -> None:
    for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
        offset, info, addend = _RELOCATION.unpack_from(data, at)
        text, where, value = symbols[info >> 32]
        place = places[section.info] + offset
        target = stubs[text] if where == _UNDEFINED else places[where] + value
        kind = info & 0xFFFFFFFF
        if kind in (_PC32, _PLT32):
            struct.pack_into("<i", memory, place, target + addend - place)
        elif kind == _ABS64:
            struct.pack_into("<Q", memory, place, base + target + addend)
        else:
            raise Unloadable(f"relocation {kind}")


def _outside(name: str) -> int:
    """Return the address of a function of the C library."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise Unloadable(f"no function {name} here") from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _make_executable(address: int, nbytes: int) -> None:
    page = mmap.PAGESIZE
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(address, -(-nbytes // page) * page, mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unloadable("memory cannot be made executable here")
