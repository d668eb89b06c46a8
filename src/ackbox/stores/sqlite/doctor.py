"""What `ackbox doctor` finds out about the ledger and the place it lives in. It changes nothing.

It runs in a process of its own. Inside the process of a server nothing but our own connections may
open the file, neither another SQLite library nor a plain `open`: the close would drop the locks.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import apsw

from ackbox.documentation import name_page
from ackbox.errors import AckboxError, LedgerCorrupt, StoreError
from ackbox.model import Finding, Verdict, from_text
from ackbox.stores.backlog import MOST_PARKED, Backlog, check_backlog
from ackbox.stores.sql import load_blocks
from ackbox.stores.sqlite import migrations
from ackbox.stores.sqlite.connections import (
    APPLICATION_ID,
    assert_whole,
    open_reader,
    translate,
)
from ackbox.stores.sqlite.doctor_checks import (
    check_clock,
    check_deleted,
    check_engine,
    check_files,
    check_filesystem,
    check_folder,
    check_free_space,
    check_moved,
    filesystem_of,
)
from ackbox.stores.sqlite.lock import find_holder
from ackbox.stores.sqlite.names import beside
from ackbox.stores.sqlite.offline import looking_at
from ackbox.stores.sqlite.reserve import free_bytes
from ackbox.stores.sqlite.token import read_token, token_path

Tick = Callable[[float], None]

_MIB = 1024 * 1024
_LOG_ALARM = 64 * _MIB
_SKEW = timedelta(seconds=30)
_PROGRESS_STEPS = 100_000
_RECOVER = (
    f"Stop the server and restore a backup. For the steps, see {name_page('how-to/recover')}."
)

API_TOKEN_USED = Finding("token", Verdict.OK, "API_TOKEN is used, and no token file")


def examine(path: Path, *, now: datetime, mounts: str) -> Iterator[Finding]:
    """`mounts` is the text of /proc/mounts, or nothing where there is none."""
    yield check_engine(apsw.sqlite_lib_version())
    folder = path.absolute().parent
    yield (home := check_folder(folder))
    if home.verdict is Verdict.FAIL:
        return
    yield check_free_space(free_bytes(folder))
    yield check_filesystem(filesystem_of(folder.resolve(), mounts))
    yield from check_files(path)
    if (holder := find_holder(path)) is not None:
        moved = list(check_moved(path, holder))
        yield from moved
        yield from check_deleted(path, holder.pid)
        if moved:  # another file has the name, or none: it says nothing about the ledger
            return
    yield from _ledger(path, now)
    yield _log(path)


def examine_deep(path: Path, tick: Tick) -> Iterator[Finding]:
    """Reads all of the ledger; calls `tick` with the seconds since the start, again and again."""
    try:
        with closing(open_reader(path)) as connection:
            _keep_watch(connection, path, tick)
            yield (pages := _pages(connection))
            if pages.verdict is Verdict.OK:
                yield _status_counts(connection)
    except apsw.InterruptError:
        yield Finding(
            "pages",
            Verdict.WARN,
            f"The check was stopped: while it read, the log grew by {_LOG_ALARM // _MIB} MiB.",
            "Check a copy: `ackbox backup FILE`, then `DB_PATH=FILE ackbox doctor --deep`.",
        )
    except apsw.Error as error:
        yield as_failure("pages", translate(error, str(path)))


def examine_token(path: Path) -> Finding:
    """The file that stands for `API_TOKEN` while that is unset."""
    try:
        token = read_token(path)
    except StoreError as error:
        return as_failure("token", error)
    where = token_path(path)
    if token is None:
        holder = find_holder(path)
        is_absent = f"{where} is not there"
        if holder is None:
            detail = f"{is_absent} yet: the next start makes it, unless API_TOKEN is set"
        else:
            detail = f"{is_absent}: process {holder.pid} may use API_TOKEN"
        return Finding("token", Verdict.OK, detail)
    return Finding("token", Verdict.OK, f"{where} holds the operator token")


def _ledger(path: Path, now: datetime) -> Iterator[Finding]:
    yield check_clock(now)
    if not path.exists():
        yield _absent(path)
        return
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    try:
        with looking_at(path) as connection:
            yield _schema(connection, path)
            assert_whole(connection)
            newest = [from_text(str(row[0])) for row in connection.execute(_sql("newest_created"))]
            backlog = _backlog(connection)
    except AckboxError as error:
        yield as_failure("ledger", error)
        return
    yield _order(max([changed, *newest]), now)
    yield from check_backlog(backlog, now)


def _backlog(connection: apsw.Connection) -> Backlog:
    rows: list[Any] = connection.execute(_sql("status_counts")).fetchall()
    counts = dict(rows)
    oldest = connection.execute(_sql("oldest_pending")).get
    parked = connection.execute(_sql("count_parked"), {"limit": MOST_PARKED}).get
    since = None if oldest is None else from_text(oldest)
    return Backlog(counts["pending"], counts["failed"], parked, since)


def _absent(path: Path) -> Finding:
    if (log := beside(path, "-wal")).exists():
        detail = f"{log} is there but {path} is not: the newest events are in it."
        return Finding("ledger", Verdict.FAIL, detail, "Put both back side by side.")
    return Finding("ledger", Verdict.OK, f"{path} is not there yet: the first start makes it")


def _schema(connection: apsw.Connection, path: Path) -> Finding:
    known = migrations.all_migrations()
    if missing := migrations.pending(connection, known):
        detail = f"{path} lacks {len(missing)} of {len(known)} migrations."
        remedy = "The next start applies them, as does `ackbox migrate`; make a backup before."
        return Finding("ledger", Verdict.WARN, detail, remedy)
    if connection.pragma("application_id") != APPLICATION_ID:
        detail = f"{path} was restored from SQL text: it has the schema of a ledger, not its mark."
        return Finding("ledger", Verdict.WARN, detail, "The next start sets the mark.")
    return Finding("ledger", Verdict.OK, f"{path}, schema {known[-1].version:04}")


def _order(newest: datetime, now: datetime) -> Finding:
    if newest <= now + _SKEW:
        return Finding("order", Verdict.OK, "nothing in the ledger is from the future")
    ahead = round((newest - now).total_seconds())
    detail = f"The ledger was written {ahead} s in the future of this clock."
    remedy = "Keep the clock right (NTP): retries and retention go by it."
    return Finding("order", Verdict.WARN, detail, remedy)


def _log(path: Path) -> Finding:
    size = _log_bytes(path)
    if size > _LOG_ALARM:
        detail = f"The log {path}-wal has {size // _MIB} MiB: something reads for very long."
        remedy = "End long reads of the file by other programs; a restart of the server cuts it."
        return Finding("log", Verdict.WARN, detail, remedy)
    advice = "a copy must have it too, and `ackbox backup FILE` sees to that"
    return Finding("log", Verdict.OK, f"{path}-wal holds {size} bytes: {advice}")


def _pages(connection: apsw.Connection) -> Finding:
    found = connection.execute("PRAGMA integrity_check(5)").fetchall()
    if found == [("ok",)]:
        return Finding("pages", Verdict.OK, "every page and index is sound")
    lines = "; ".join(str(line) for (line,) in found)
    return Finding("pages", Verdict.FAIL, f"The ledger is damaged: {lines}.", _RECOVER)


def _status_counts(connection: apsw.Connection) -> Finding:
    rows: list[Any] = connection.execute(_sql("recount")).fetchall()
    wrong = [f"{status} {kept}, counted {real}" for status, kept, real in rows if kept != real]
    if not wrong:
        total = sum(kept for _, kept, _ in rows)
        return Finding("status_counts", Verdict.OK, f"{total} events, counted one by one")
    remedy = "No event is lost, but back-pressure and metrics go by these: please report it."
    return Finding(
        "status_counts", Verdict.FAIL, f"Kept counts are wrong: {'; '.join(wrong)}.", remedy
    )


def _keep_watch(connection: apsw.Connection, path: Path, tick: Tick) -> None:
    """A long read keeps the log of a running server from starting over: it ends before that
    matters (L13)."""
    started = monotonic()
    most = _log_bytes(path) + _LOG_ALARM

    def look() -> bool:
        tick(monotonic() - started)
        return _log_bytes(path) > most

    connection.set_progress_handler(look, _PROGRESS_STEPS)


def as_failure(about: str, error: AckboxError) -> Finding:
    """Our errors say what is wrong, and then what to do."""
    detail, _, remedy = str(error).partition(". ")
    if isinstance(error, LedgerCorrupt):
        remedy = _RECOVER
    return Finding(about, Verdict.FAIL, detail, remedy or "Its log may say more.")


def _log_bytes(path: Path) -> int:
    try:
        return beside(path, "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _sql(name: str) -> str:
    return load_blocks("ackbox.stores.sqlite")[name]
