"""Connections to the ledger file: one that writes, others that only read, and the checks before
their use.

No other SQLite library may open the file inside this process: its close would drop the POSIX locks
of ours, and a second process could then overwrite committed rows (measured).
"""

import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import apsw

from ackbox.documentation import name_page
from ackbox.errors import (
    AckboxError,
    InvalidEvent,
    LedgerCorrupt,
    StorageFull,
    StoreError,
    Unavailable,
)
from ackbox.stores.sqlite import migrations
from ackbox.stores.sqlite.limits import LIMITS, Limits

APPLICATION_ID = 0x41434B42  # "ACKB"
_CACHE_KIBIBYTES = 49152
_PROGRESS_STEPS = 10_000
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES, _APPLICATION_ID_AT = 100, 68


def open_writer(
    path: Path, *, durability: str, vfs: str | None = None, limits: Limits = LIMITS
) -> apsw.Connection:
    """Open the only writing connection. Set its pragmas, read them back and check them (L12)."""
    connection = _open(path, apsw.SQLITE_OPEN_READWRITE, vfs, limits)
    try:
        _set_pragmas(connection, durability, limits)
        _assert_pragmas(connection, durability, limits)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    return _open(path, apsw.SQLITE_OPEN_READONLY, vfs)


def open_immutable(path: Path) -> apsw.Connection:
    """Open a file that does not change meanwhile. SQLite then creates no `-wal` and `-shm` beside
    it, and needs no permission to do so."""
    uri = f"file:{quote(str(path.absolute()))}?immutable=1"
    return _open(uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def assert_undamaged(connection: apsw.Connection, *, seconds: float = LIMITS.check_seconds) -> None:
    """Raise `LedgerCorrupt` if `quick_check` finds damage within `seconds` seconds. Of a large
    file it checks only a part; `ackbox doctor --deep` checks all of it."""
    with_deadline(connection, seconds)
    try:
        report = connection.pragma("quick_check", 1)
    except apsw.InterruptError:
        return
    finally:
        connection.set_progress_handler(None)
    if report != "ok":
        raise LedgerCorrupt(damaged(connection.filename, str(report)))


def open_without_trace(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open a ledger read-only that no other process has open. If its log is empty, the file alone
    is the whole ledger: then nothing is changed, and no file is left beside it."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        return open_reader(path, vfs=vfs)
    return open_immutable(path)


def assert_ledger_file(path: Path) -> None:
    """Raise unless the file is a ledger. An empty file in its place means that events were lost,
    and the database of another program must not even be put into WAL mode. Check the kind of file
    before opening it: opening a FIFO would wait for a writer."""
    if (kind := _irregular_kind(path.stat().st_mode)) is not None:
        raise StoreError(
            f"{path} is {kind}, not a regular file. Set ACKBOX_DB_PATH to a ledger, or to a new "
            "name."
        )
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        what = "is empty" if not header else "is not a SQLite database"
        raise LedgerCorrupt(damaged(str(path), what))
    application_id = int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4])
    is_ours = application_id == APPLICATION_ID or (application_id == 0 and is_restored(path))
    if not is_ours:
        raise StoreError(_refusal(str(path), "application_id", APPLICATION_ID, application_id))


def _irregular_kind(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a directory"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def is_restored(path: Path) -> bool:
    """Return whether this is a ledger that was restored from SQL text, which `.dump` writes without
    the application_id. Its tables must be exactly ours."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        return False  # another program uses this database
    with closing(open_immutable(path)) as connection:
        return connection.pragma("application_id") == 0 and migrations.is_exact(connection)


def damaged(path: str, what: str) -> str:
    """Return the message about a damaged ledger. `what` may be a report of several lines, in which
    lines with stars are headings."""
    first = next((line for line in what.splitlines() if not line.startswith("***")), what)
    return (
        f"The ledger {path} is damaged: {first}. Nothing was changed. Restore a backup, or move "
        f"the file aside and salvage what can be read. See {name_page('how-to/recover')}."
    )


def with_deadline(connection: apsw.Connection, seconds: float) -> None:
    """Interrupt any statement of this connection that still runs after `seconds` seconds."""
    end = monotonic() + seconds
    connection.set_progress_handler(lambda: monotonic() > end, _PROGRESS_STEPS)


def translate(error: apsw.Error, path: str) -> AckboxError:
    """Return the error of ours that stands for an error of the driver."""
    reason = str(error) or type(error).__name__
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return LedgerCorrupt(damaged(path, reason))
        case apsw.FullError():
            return StorageFull("The disk is full: new events cannot be stored.", retry_after=5)
        case apsw.ConstraintError() | apsw.TooBigError() | apsw.MismatchError():
            return InvalidEvent(f"The event cannot be stored: {reason}")
        case apsw.InterruptError():
            return Unavailable("The read took too long and was stopped; request less.")
        case (
            apsw.BusyError()
            | apsw.CantOpenError()
            | apsw.IOError()
            | apsw.LockedError()
            | apsw.NoMemError()
            | apsw.ProtocolError()
            | apsw.ReadOnlyError()
        ):
            return Unavailable(f"The database cannot be used now: {reason}.")
        case _:
            return StoreError(f"SQLite refused a statement of ours: {reason}.")


def has_wal_reset_bug(version: str) -> bool:
    """Return whether this SQLite may corrupt a database when a writer resets the write-ahead log.
    The bug is fixed in 3.51.3 and in the patch releases 3.50.7 and 3.44.6. 3.52.0 was withdrawn."""
    parts = [int(part) for part in version.split(".")]
    fixed = {(3, 52): [3, 52, 1], (3, 50): [3, 50, 7], (3, 44): [3, 44, 6]}
    return parts < fixed.get((parts[0], parts[1]), [3, 51, 3])


def assert_sqlite_version(version: str) -> None:
    if has_wal_reset_bug(version):
        raise StoreError(
            f"SQLite {version} can corrupt a database in WAL mode; install apsw with SQLite 3.51.3 "
            "or later: pip install --upgrade apsw"
        )


def _open(
    path: Path | str, flags: int, vfs: str | None = None, limits: Limits = LIMITS
) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=200)
    connection.set_busy_timeout(limits.busy_milliseconds)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    return connection


def _set_pragmas(connection: apsw.Connection, durability: str, limits: Limits) -> None:
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", durability)
    connection.pragma("fullfsync", True)
    connection.pragma("foreign_keys", True)
    connection.pragma("cache_size", -_CACHE_KIBIBYTES)
    connection.pragma("temp_store", "memory")  # or the undo log of a savepoint would be a file
    connection.pragma("journal_size_limit", limits.log_bytes_kept)
    connection.wal_autocheckpoint(0)  # the writer runs the checkpoints


def _assert_pragmas(connection: apsw.Connection, durability: str, limits: Limits) -> None:
    expected: dict[str, object] = {
        "journal_mode": "wal",
        "synchronous": {"normal": 1, "full": 2}[durability],
        "foreign_keys": 1,
        "busy_timeout": limits.busy_milliseconds,
        "application_id": APPLICATION_ID,
    }
    for name, value in expected.items():
        if (actual := connection.pragma(name)) != value:
            raise StoreError(_refusal(connection.filename, name, value, actual))


def _refusal(path: str, name: str, expected: object, actual: object) -> str:
    if name == "application_id":
        return (
            f"{path} is a SQLite database, but not a ledger of ackbox; set another ACKBOX_DB_PATH."
        )
    return f"{path} cannot be used: {name} must be {expected}, but SQLite reports {actual}."


Connect = Callable[[], apsw.Connection]
