"""Arrays in a ``.npz``: stored ones are read in place, compressed ones unpacked to a nameless file."""

from __future__ import annotations

import io
import os
import struct
import threading
import zipfile
import zlib
from typing import IO

from einturnip.core.errors import StoreError
from einturnip.storage.file_format import FileFormat
from einturnip.storage.file_versions import overwritten, version
from einturnip.storage.formats import zip_layout
from einturnip.storage.formats.npy import NpyHeader, npy_layout, read_header
from einturnip.storage.io.file_source import FileSource, staging
from einturnip.storage.io.pages import drop
from einturnip.storage.io.transfer import read_full, write_full
from einturnip.storage.io.unpublished_file import UnpublishedFile, default_directory, nameless_file, out_of_space
from einturnip.storage.location import closed_on_error, open_file, pick_key
from einturnip.storage.outputs.sinks import FileSkeleton, Tensors
from einturnip.storage.types import Array, Extent, Region, Source

_CHUNK = 1 << 20
MAX_DIRECTORY_NBYTES = 2 << 20
"""Of the member list of an archive, in which a member takes at least 46 bytes, and 650 in memory."""

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


class _Reader(io.FileIO):
    """An open file for zipfile, which reads the whole member list at once."""

    def __init__(self, fd: int, path: str) -> None:
        super().__init__(os.dup(fd), "rb")
        self._path = path

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > MAX_DIRECTORY_NBYTES:
            raise StoreError(
                f"{self._path}: its list of members takes {size:,} bytes; einturnip reads at most "
                f"{MAX_DIRECTORY_NBYTES:,}: save the arrays in several files"
            )
        return super().read(-1 if size is None else size) or b""


def _archive(file: io.FileIO, path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
        raise StoreError(f"{path}: is no whole .npz archive ({error}); copy or save it again") from error


def _opened(archive: zipfile.ZipFile, info: zipfile.ZipInfo, shown: str) -> IO[bytes]:
    try:
        return archive.open(info)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise StoreError(f"{shown}: cannot be unpacked ({error}); save it again with np.savez") from error


def _stream_header(stream: IO[bytes], shown: str) -> NpyHeader:
    seen = bytearray()

    def read(offset: int, nbytes: int) -> bytes:
        try:
            while len(seen) < offset + nbytes and (more := stream.read(offset + nbytes - len(seen))):
                seen.extend(more)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise StoreError(f"{shown}: cannot be unpacked ({error}): the archive is damaged") from error
        return bytes(seen[offset : offset + nbytes])

    return read_header(read, shown)


def _data_offset(fd: int, info: zipfile.ZipInfo, shown: str) -> int:
    """The offset of a stored member's data, by the lengths in its local header instead of the directory's."""
    raw = os.pread(fd, _LOCAL_HEADER.size, info.header_offset)
    if len(raw) < _LOCAL_HEADER.size or raw[:4] != b"PK\x03\x04":
        raise StoreError(f"{shown}: its place in the archive holds no member: the archive is damaged")
    *_, name_nbytes, extra_nbytes = _LOCAL_HEADER.unpack(raw)
    return info.header_offset + _LOCAL_HEADER.size + int(name_nbytes) + int(extra_nbytes)


class CompressedSource:
    """A compressed member, unpacked at the first read so that planning costs nothing.

    Offsets are unpacked ones.
    """

    def __init__(self, name: str, path: str, fd: int, info: zipfile.ZipInfo, header: NpyHeader) -> None:
        self.name = self.tier = name
        self.shape, self.dtype = header.shape, header.dtype
        self._path, self._fd, self._info, self._header = path, fd, info, header
        self._directory = default_directory()
        self._layout = npy_layout(header, 0)
        self._lock = threading.Lock()
        self._unpacked: FileSource | None = None
        self._version = version(fd)

    def extent(self, region: Region) -> Extent:
        """The region's extent in the unpacked array's file."""
        return self._layout.extent(region)

    def read(self, region: Region, out: Array) -> int:
        """Fill ``out``; the first call unpacks the whole array."""
        with self._lock:
            if self._unpacked is None:
                self._unpacked = self._unpack()
        return self._unpacked.read(region, out)

    def require_unchanged(self) -> None:
        """Check that the archive has not changed before its member was unpacked.

        Raises:
            StoreError: it was overwritten.
        """
        if self._unpacked is None and self._fd >= 0 and version(self._fd) != self._version:
            raise overwritten(self.name)

    def release(self, region: Region) -> None:
        """Drop the region's pages from the page cache."""
        if self._unpacked is not None:
            self._unpacked.release(region)

    def close(self) -> None:
        """Close the archive and remove the unpacked file."""
        if self._unpacked is not None:
            self._unpacked.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _unpack(self) -> FileSource:
        """Stream the member, a piece at a time, to a nameless file."""
        nbytes = self._layout.offset + self._layout.nbytes
        target = nameless_file(self._directory, nbytes, f"unpacking {self.name}")
        buffer = bytearray(_CHUNK)
        try:
            at = 0
            with (
                _Reader(self._fd, self._path) as file,
                zipfile.ZipFile(file) as archive,
                archive.open(self._info) as stream,
            ):
                while count := stream.readinto(buffer):  # type: ignore[attr-defined]
                    if at + count > nbytes:
                        raise StoreError(f"{self.name}: unpacks to more than the {nbytes:,} bytes of its array")
                    write_full(target, memoryview(buffer)[:count], at, self._full)
                    at += count
            self.require_unchanged()
            if at < nbytes:
                raise StoreError(f"{self.name}: is truncated: needs {nbytes} bytes, unpacks to {at}")
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            os.close(target)
            self.require_unchanged()
            raise StoreError(f"{self.name}: cannot be unpacked ({error}): the archive is damaged") from error
        except BaseException:
            os.close(target)
            raise
        return FileSource(self.name, self.tier, target, self._layout, self.dtype, self._header.swapped)

    def _full(self, error: OSError) -> StoreError:
        return out_of_space(error, f"unpacking {self.name}", self._directory, self._layout.nbytes)


def _open_member(path: str, key: str | None, name: str, fd: int, size: int) -> Source:
    """Open the array ``key`` of an open archive; takes over ``fd``."""
    with _Reader(fd, path) as file, _archive(file, path) as archive:
        members = {
            info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")
        }
        key = pick_key(path, key, list(members), name)
        info, shown = members[key], f"{path}::{key}"
        if info.flag_bits & 0x1:
            raise StoreError(f"{shown}: is encrypted; save the archive again without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise StoreError(
                f"{shown}: is compressed by a method (number {info.compress_type}) that einturnip does not decode; "
                "save it again with np.savez_compressed"
            )
        with _opened(archive, info, shown) as stream:
            header = _stream_header(stream, shown)
    layout = npy_layout(header, 0)
    needed = layout.offset + layout.nbytes
    if info.file_size < needed:
        raise StoreError(f"{shown}: is truncated: needs {needed} bytes, has {info.file_size}; save it again")
    if info.compress_type != zipfile.ZIP_STORED:
        if info.file_size > needed:
            raise StoreError(f"{shown}: holds {info.file_size:,} bytes where its header states {needed:,}: damaged")
        return CompressedSource(shown, path, fd, info, header)
    start = _data_offset(fd, info, shown)
    if start + needed > size:
        raise StoreError(f"{path}: is truncated: {key} needs {start + needed} bytes, the file has {size}")
    return FileSource(shown, path, fd, npy_layout(header, start), header.dtype, header.swapped)


def _finish(file: UnpublishedFile, members: tuple[zip_layout.ZipMember, ...], begin: int) -> None:
    """Complete an archive: checksums, for which the data are read once more, and the directory."""
    checksums = list[int]()
    for member in members:
        crc, at, end = 0, member.begin, member.begin + member.nbytes
        while at < end:
            piece = staging().data[: min(end - at, staging().nbytes)]
            read_full(file.fd, piece, at, file.path)
            crc, at = zlib.crc32(piece, crc), at + piece.nbytes
            if at % (32 << 20) < piece.nbytes:
                drop(file.fd, member.begin, at)
        checksums.append(crc)
        write_full(file.fd, memoryview(struct.pack("<I", crc)), member.crc_offset, file.explain)
    tail = zip_layout.directory(members, tuple(checksums))
    write_full(file.fd, memoryview(tail), begin, file.explain)


class NpzFormat(FileFormat):
    """``.npz``, the format of ``numpy.savez``."""

    def source(self, path: str, key: str | None, name: str) -> Source:
        """Open the array ``key``; a compressed one is unpacked when it is first read."""
        with closed_on_error(path) as (fd, size):
            return _open_member(path, key, name, fd, size)

    def keys(self, path: str) -> tuple[str, ...]:
        """The names of the arrays in an archive."""
        fd, _ = open_file(path)
        try:
            with _Reader(fd, path) as file, _archive(file, path) as archive:
                return tuple(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
        finally:
            os.close(fd)

    def lay_out(self, path: str, tensors: Tensors) -> FileSkeleton:
        """Members without compression, then their directory."""
        members = zip_layout.lay_out(path, tensors)
        pieces = [(m.offset, m.local) for m in members] + [(m.begin, m.npy_header) for m in members]
        end = members[-1].begin + members[-1].nbytes
        nbytes = end + len(zip_layout.directory(members, (0,) * len(members)))
        begins = {key: member.data for key, member in zip(tensors, members, strict=True)}
        return FileSkeleton(tuple(pieces), begins, nbytes, lambda file: _finish(file, members, end))


NPZ = NpzFormat()
