"""Copy a ledger that is open, in small steps (W12).

In the process that has the writer, the steps run on the writer's connection, between transactions.
SQLite then applies every later change to the copy too, so the copy never starts over, and no read
stays open while the log grows. A command that copies beside a running server reads on a connection
of its own instead: see `live_backup.py`.
"""

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Protocol, TypeVar

import apsw

from ackbox.errors import OUTAGES, StoreError
from ackbox.model import BackupProgress
from ackbox.stores.sqlite.connections import open_immutable
from ackbox.stores.sqlite.files import sync_folder
from ackbox.stores.sqlite.limits import LIMITS
from ackbox.stores.sqlite.names import belongs_to_ledger, resolve
from ackbox.stores.sqlite.write.jobs import Operation

T = TypeVar("T")

_PROGRESS_STEPS = 10_000
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DRAFT = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW


class Source(Protocol):
    """An executor of operations on a connection to the ledger: the writer, or a separate reader."""

    def submit(
        self, operation: Operation[T], *, outside_transaction: bool = False
    ) -> Awaitable[T]: ...


class Backup:
    """A copy that runs while it is iterated, `pages` pages in each step; each item is its progress.
    The target must not exist."""

    def __init__(
        self, writer: "Source", ledger: Path, target: Path, *, pages: int = LIMITS.backup_pages
    ) -> None:
        self._writer = writer
        self._ledger = ledger
        self._target = target
        self._pages = pages

    async def __aiter__(self) -> AsyncGenerator[BackupProgress, None]:
        draft = self._target.with_name(self._target.name + ".part")
        try:
            _assert_free(self._ledger, self._target, draft)
            copy = _Copy(resolve(draft.parent) / draft.name)
        except OSError as error:  # BACKUP_DIR may be a link loop
            raise StoreError(f"Cannot write {self._target}: {error.strerror}.") from error
        try:
            backup = await self._writer.submit(copy.start, outside_transaction=True)
            while not backup.done:
                yield await self._writer.submit(
                    lambda _: _step(backup, self._pages), outside_transaction=True
                )
            await self._writer.submit(copy.finish, outside_transaction=True)
            await asyncio.to_thread(copy.verify)
            copy.move(self._target)
            await asyncio.to_thread(_sync_folder_of, self._target)
        finally:
            await self._discard(copy)

    async def _discard(self, copy: "_Copy") -> None:
        """Remove the draft. The clean-up is queued before anything is awaited, so that a second
        cancellation comes too late. A stopped writer has ended the copy when it closed the
        ledger."""
        copy.unwanted = True
        try:
            await self._writer.submit(copy.discard, outside_transaction=True)
        except OUTAGES:
            copy.remove()


class _Copy:
    """A draft beside the target. Methods that take a connection run on the thread of that
    connection: the writer thread, or in `live_backup.py` the command's own."""

    def __init__(self, draft: Path) -> None:
        self.unwanted = False
        self._draft = draft
        self._fd: int | None = None  # set while the draft is ours
        self._backup: apsw.Backup | None = None
        self._connection: apsw.Connection | None = None

    def start(self, source: apsw.Connection) -> apsw.Backup:
        try:
            self._fd = _claim(self._draft)
        except BlockingIOError:
            raise StoreError(f"Another copy is being written to {self._draft}.") from None
        except OSError as error:
            raise StoreError(f"Cannot write {self._draft}: {error.strerror}.") from error
        try:
            return self._begin(source, self._fd)
        except apsw.Error as error:
            raise StoreError(f"Cannot write {self._draft}: {error}.") from error

    def _begin(self, source: apsw.Connection, fd: int) -> apsw.Backup:
        self._connection = apsw.Connection(str(self._draft), flags=_OPEN_DRAFT)
        if not _is_at(fd, self._draft):  # replaced before SQLite opened it by name
            raise StoreError(f"{self._draft} was replaced while the copy began.")
        self._connection.pragma("journal_mode", "off")  # an incomplete draft is of no use
        self._connection.pragma("synchronous", "off")  # one sync at the end is enough
        self._backup = self._connection.backup("main", source, "main")
        return self._backup

    def finish(self, _: apsw.Connection | None = None) -> None:
        if self._backup is not None:
            self._backup.close(True)
        if self._connection is not None:
            self._connection.close(True)

    def verify(self) -> None:
        """Check and sync the copy. This runs off the writer thread: it takes a while for a large
        copy, and events keep coming."""
        connection = open_immutable(self._draft)
        connection.set_progress_handler(lambda: self.unwanted, _PROGRESS_STEPS)
        try:
            report = connection.pragma("quick_check", 1)
        except apsw.Error as error:
            raise StoreError(f"The copy cannot be read: {error}; it was removed.") from error
        finally:
            connection.close()
        if report != "ok":
            raise StoreError(
                f"The copy is damaged, because the ledger is: {str(report).splitlines()[-1]}. "
                "It was removed; `ackbox doctor --deep` says more."
            )
        self._sync()

    def _sync(self) -> None:
        try:
            if self._fd is not None:
                os.fsync(self._fd)
        except OSError as error:
            raise StoreError(f"Cannot write {self._draft}: {error.strerror}.") from error

    def move(self, target: Path) -> None:
        """Give the copy its final name. Raise if a file took that name meanwhile."""
        try:
            _rename_to_free_name(self._draft, target)
        except OSError as error:
            raise StoreError(f"Cannot write {target}: {error.strerror}.") from error
        self._give_up_claim()

    def discard(self, _: apsw.Connection) -> None:
        self.finish()
        self.remove()

    def remove(self) -> None:
        if self._fd is not None:
            if _is_at(self._fd, self._draft):
                self._draft.unlink(missing_ok=True)
            self._give_up_claim()

    def _give_up_claim(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _rename_to_free_name(draft: Path, target: Path) -> None:
    try:
        target.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError:  # without hard links, a short race remains
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        draft.replace(target)
    else:
        draft.unlink()


def _assert_free(ledger: Path, target: Path, draft: Path) -> None:
    for path in (target, draft):
        if belongs_to_ledger(path, ledger):
            raise StoreError(f"{path} is a name of the ledger itself; name another file.")
    if os.path.lexists(target):
        raise StoreError(f"{target} exists already; name a file that does not.")


def _sync_folder_of(target: Path) -> None:
    """Sync the folder, so that the new name survives a power cut."""
    try:
        sync_folder(target.parent)
    except OSError as error:
        raise StoreError(f"Cannot write {target}: {error.strerror}.") from error


def _claim(draft: Path) -> int:
    """Create and lock the draft. Never follow, truncate or write to an existing file of this name:
    it may be a link to any file of this user, even to the ledger."""
    try:
        return _create(draft)
    except FileExistsError:
        _remove_leftover(draft)
        return _create(draft)


def _create(draft: Path) -> int:
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _assert_own_file(os.fstat(fd), draft)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _remove_leftover(draft: Path) -> None:
    """Remove the draft of a killed copy. Raise if the file is anything else, or still written
    to."""
    _assert_own_file(draft.lstat(), draft)  # check before opening: it may be a pipe or a device
    fd = os.open(draft, os.O_RDONLY | _NO_LINK)
    try:
        _assert_own_file(os.fstat(fd), draft)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(fd, draft):
            draft.unlink()
    finally:
        os.close(fd)


def _assert_own_file(status: os.stat_result, draft: Path) -> None:
    is_ours = status.st_uid == os.geteuid() and status.st_nlink == 1
    if not (stat.S_ISREG(status.st_mode) and is_ours):
        raise StoreError(
            f"{draft} exists and is not the draft of an interrupted copy: it is a link, not a "
            "regular file, or another user's. Nothing was written. Remove it, or name another file."
        )


def _is_at(fd: int, path: Path) -> bool:
    """Return whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _step(backup: apsw.Backup, pages: int) -> BackupProgress:
    try:
        backup.step(pages)
    except apsw.Error as error:  # an error of the copy: ledger pages are not checked
        raise StoreError(f"The copy could not be written: {error}.") from error
    total = backup.page_count
    return BackupProgress(total - backup.remaining, total)
