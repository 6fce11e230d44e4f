"""Output files that stay nameless until they are complete, so that a killed run leaves nothing behind."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile

from einturnip.core.errors import BindError, StoreError
from einturnip.core.regular_files import create_file, lock, remove_abandoned, temporary_path
from einturnip.storage.io.pages import drop

_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def default_directory() -> str:
    """The directory for large temporary files: the system's, or ``/var/tmp`` if that one is a tmpfs."""
    chosen = tempfile.gettempdir()
    if _is_memory(chosen) and os.access("/var/tmp", os.W_OK) and not _is_memory("/var/tmp"):
        return "/var/tmp"
    return chosen


def nameless_file(directory: str, nbytes: int, purpose: str) -> int:
    """Create a preallocated file that vanishes with its descriptor.

    Raises:
        StoreError: the directory is not writable, or its disk is full.
    """
    fd = _open_nameless(directory, purpose)
    if fd is None:
        try:
            fd, path = create_file(os.path.join(directory, "unnamed"), 0o600)
            os.unlink(path)
        except OSError as error:
            raise StoreError(f"{purpose}: {directory} cannot be written to: {error.strerror}") from error
    try:
        preallocate(fd, nbytes, purpose, directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def preallocate(fd: int, nbytes: int, purpose: str, directory: str) -> None:
    """Allocate disk space now, so that a full disk is detected before any work.

    Raises:
        StoreError: there is not enough.
    """
    if not nbytes:
        return
    try:
        os.posix_fallocate(fd, 0, nbytes)
        return
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise out_of_space(error, purpose, directory, nbytes) from error
    try:
        if nbytes > free_nbytes(directory):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(fd, nbytes)
    except OSError as error:
        raise out_of_space(error, purpose, directory, nbytes) from error


def out_of_space(error: OSError, purpose: str, directory: str, needed: int) -> StoreError:
    """The error for a failed write or allocation, with the needed and the free space."""
    if error.errno not in _NO_SPACE:
        return StoreError(f"{purpose}: writing in {directory} failed: {error.strerror}")
    if error.errno == errno.EFBIG:
        why = f"needs a file of {readable(needed)}, more than the limit on file sizes here allows (ulimit -f)"
    else:
        why = (
            f"needs {readable(needed)}, but {directory} has {readable(free_nbytes(directory))} free ({error.strerror})"
        )
    return StoreError(f"{purpose}: {why}; free some room or choose another directory")


def free_nbytes(directory: str) -> int:
    """Free bytes for an ordinary user on a directory's disk."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


class UnpublishedFile:
    """A file under construction: preallocated, written through ``fd``, visible after ``commit``.

    ``path`` is kept as the user wrote it for messages. A symbolic link is followed, so its target is replaced. On file
    systems without nameless files, a dot file is used instead; its writer locks it, and the next output in the
    directory removes dot files without a living writer.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._target = os.path.realpath(path)
        self.directory = os.path.dirname(self._target)
        self._check_target()
        remove_abandoned(self.directory)
        self._temporary: str | None = None
        fd = _open_nameless(self.directory, path, 0o666)
        self.fd = self._open_named() if fd is None else fd

    def share(self) -> str:
        """Return a path under which other processes can open the file before it is committed."""
        if self._temporary is None:
            try:
                self._link()
            except OSError as error:
                raise StoreError(f"{self.path}: {self.directory} cannot be written to: {error.strerror}") from error
        assert self._temporary is not None
        return self._temporary

    @classmethod
    def attached(cls, path: str, shared: str) -> UnpublishedFile:
        """Open a file that another process has shared, and will commit or abort.

        Raises:
            StoreError: it is not there.
        """
        found = cls.__new__(cls)
        found.path, found.directory, found._temporary = path, os.path.dirname(shared), None
        try:
            found.fd = os.open(shared, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(
                f"{path}: its folder {found.directory} is not the same disk here: {error.strerror}"
            ) from error
        return found

    def preallocate(self, nbytes: int) -> None:
        """Allocate space for the whole file; on failure nothing remains.

        Raises:
            StoreError: the disk is full.
        """
        try:
            preallocate(self.fd, nbytes, self.path, self.directory)
        except StoreError:
            self.abort()
            raise

    def explain(self, error: OSError) -> StoreError:
        """The error for a failed write."""
        return out_of_space(error, self.path, self.directory, os.fstat(self.fd).st_size)

    def commit(self) -> None:
        """Make the file durable, rename it atomically to its place, and drop its pages from the cache.

        Raises:
            StoreError: the disk or the directory fails; nothing remains.
        """
        try:
            self._keep_mode()
            os.fsync(self.fd)
            if self._temporary is None:
                self._link()
            assert self._temporary is not None
            os.replace(self._temporary, self._target)
            self._temporary = None
            _sync_directory(self.directory)
            drop(self.fd, 0, os.fstat(self.fd).st_size)
        except OSError as error:
            failure = StoreError(f"{self.path}: the finished file cannot be put in place: {error.strerror}")
            self.abort()
            raise failure from error
        os.close(self.fd)
        self.fd = -1

    def abort(self) -> None:
        """Remove the file; idempotent, and without effect after a commit."""
        if self._temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)
            self._temporary = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _check_target(self) -> None:
        if not os.path.isdir(self.directory):
            raise BindError(f"{self.path}: there is no directory {self.directory}; create it first")
        require_name(self._target, self.path)
        if os.path.isdir(self._target):
            raise BindError(f"{self.path}: is a directory; name a file in it")
        if os.path.exists(self._target) and not os.path.isfile(self._target):
            raise BindError(f"{self.path}: is not a regular file (a pipe or a device); name a file")

    def _keep_mode(self) -> None:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            os.fchmod(self.fd, stat.S_IMODE(os.stat(self._target).st_mode))

    def _open_named(self) -> int:
        try:
            fd, self._temporary = create_file(self._target, 0o666)
        except OSError as error:
            raise StoreError(f"{self.path}: {self.directory} cannot be written to: {error.strerror}") from error
        return fd

    def _link(self) -> None:
        """Give the nameless file a temporary name next to its target; it is locked before others can see it."""
        lock(self.fd)
        path = temporary_path(self._target)
        folder = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # a directory descriptor makes Python call linkat, which can follow the link to the nameless file
            os.link(f"/proc/self/fd/{self.fd}", path, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)
        self._temporary = path


def _open_nameless(directory: str, purpose: str, mode: int = 0o600) -> int | None:
    """An ``O_TMPFILE`` descriptor; None where the file system lacks it."""
    try:
        return os.open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_TMPFILE and os.path.isdir(directory):
            return None
        raise StoreError(f"{purpose}: {directory} cannot be written to: {error.strerror}") from error


def _sync_directory(directory: str) -> None:
    """Make a rename durable, if the directory can be opened and its file system supports that."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(fd)


def _is_memory(directory: str) -> bool:
    """True for a directory on a file system in RAM."""
    path = os.path.realpath(directory)
    best, kind = "", ""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, fstype, *_ = line.split(" ")
                if len(point) >= len(best) and (path + "/").startswith(point.rstrip("/") + "/"):
                    best, kind = point, fstype
    except OSError:
        return False
    return kind in ("tmpfs", "ramfs")


def readable(nbytes: int) -> str:
    """Format bytes for a user, with the exact number if it is small."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} bytes"


def require_name(target: str, path: str) -> None:
    """Refuse an impossible file name before anything is computed: too long, or a broken chain of links.

    Raises:
        BindError: names ``path``, which is how the user wrote ``target``.
    """
    try:
        os.stat(target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise BindError(f"{path}: no file can be put there: {error.strerror}; name another") from error
