"""The checks of `ackbox doctor` on the ledger and its surroundings. They change nothing.

They run in a process of their own. Inside the process of a server, only our own connections may
open the file, neither another SQLite library nor a plain `open`: the close would drop the locks.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import apsw

from ackbox.errors import AckboxError, StoreError
from ackbox.model import Finding, Verdict, from_text
from ackbox.stores.doctor_checks import (
    MAX_PARKED,
    RECOVER,
    Backlog,
    as_failure,
    check_backlog,
    check_counts,
    report_missing,
)
from ackbox.stores.sqlite import migrations
from ackbox.stores.sqlite.admin.doctor_checks import (
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
from ackbox.stores.sqlite.admin.offline import open_for_inspection
from ackbox.stores.sqlite.connections import (
    APPLICATION_ID,
    assert_undamaged,
    open_reader,
    translate,
)
from ackbox.stores.sqlite.lock import find_holder
from ackbox.stores.sqlite.names import beside
from ackbox.stores.sqlite.statements import blocks
from ackbox.stores.sqlite.token import read_token, token_path
from ackbox.stores.sqlite.write.reserve import free_bytes

Tick = Callable[[float], None]

_MIB = 1024 * 1024
_LOG_ALARM = 64 * _MIB
_SKEW = timedelta(seconds=30)
_PROGRESS_STEPS = 100_000

API_TOKEN_USED = Finding("token", Verdict.OK, "API_TOKEN is used, and no token file")


def examine(path: Path, *, now: datetime, mounts: str) -> Iterator[Finding]:
    """Yield the findings. `mounts` is the text of /proc/mounts, or empty where there is none."""
    yield check_engine(apsw.sqlite_lib_version())
    folder = path.absolute().parent
    yield (in_folder := check_folder(folder))
    if in_folder.verdict is Verdict.FAIL:
        return
    yield check_free_space(free_bytes(folder))
    yield check_filesystem(filesystem_of(folder.resolve(), mounts))
    yield from check_files(path)
    if (holder := find_holder(path)) is not None:
        moved = list(check_moved(path, holder))
        yield from moved
        yield from check_deleted(path, holder.pid)
        if moved:  # another file, or none, has the name: nothing there is the ledger
            return
    yield from _ledger(path, now)
    yield _log(path)


def examine_deep(
    path: Path, tick: Tick, *, log_growth: int = _LOG_ALARM, steps: int = _PROGRESS_STEPS
) -> Iterator[Finding]:
    """Read all of the ledger. Every `steps` steps of SQLite, call `tick` with the seconds since the
    start, and stop if the log has grown by more than `log_growth` bytes: a long read keeps the log
    of a running server from restarting (L13)."""
    started = monotonic()
    limit = _log_bytes(path) + log_growth

    def has_grown() -> bool:
        tick(monotonic() - started)
        return _log_bytes(path) > limit

    try:
        with closing(open_reader(path)) as connection:
            connection.set_progress_handler(has_grown, steps)
            yield (pages := _pages(connection))
            if pages.verdict is Verdict.OK:
                yield _status_counts(connection)
    except apsw.InterruptError:
        yield Finding(
            "pages",
            Verdict.WARN,
            f"The check was stopped: while it read, the log grew by {log_growth // _MIB} MiB.",
            "Check a copy: `ackbox backup FILE`, then `ACKBOX_DB_PATH=FILE ackbox doctor --deep`.",
        )
    except apsw.Error as error:
        yield as_failure("pages", translate(error, str(path)))


def examine_token(path: Path) -> Finding:
    """Check the token file, which is used while `API_TOKEN` is unset."""
    try:
        token = read_token(path)
    except StoreError as error:
        return as_failure("token", error)
    where = token_path(path)
    if token is None:
        holder = find_holder(path)
        absence = f"{where} does not exist"
        if holder is None:
            detail = f"{absence} yet: the next start creates it, unless API_TOKEN is set"
        else:
            detail = f"{absence}: perhaps process {holder.pid} was started with API_TOKEN set"
        return Finding("token", Verdict.OK, detail)
    return Finding("token", Verdict.OK, f"{where} holds the operator token")


def _ledger(path: Path, now: datetime) -> Iterator[Finding]:
    yield check_clock(now)
    if not path.exists():
        yield _absent(path)
        return
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    try:
        with open_for_inspection(path) as connection:
            yield _schema(connection, path)
            assert_undamaged(connection)
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
    parked = connection.execute(_sql("count_parked"), {"limit": MAX_PARKED}).get
    has_submissions = connection.table_exists(None, "submissions")  # an older ledger has none
    sent = connection.execute(_sql("oldest_submission")).get if has_submissions else None
    since, unrecorded = [None if at is None else from_text(at) for at in (oldest, sent)]
    return Backlog(counts["pending"], counts["failed"], parked, since, unrecorded)


def _absent(path: Path) -> Finding:
    if (log := beside(path, "-wal")).exists():
        detail = f"{log} exists but {path} does not: the newest events are in the log."
        return Finding("ledger", Verdict.FAIL, detail, "Put both files side by side again.")
    return Finding("ledger", Verdict.OK, f"{path} does not exist yet: the first start creates it")


def _schema(connection: apsw.Connection, path: Path) -> Finding:
    known = migrations.all_migrations()
    if missing := migrations.pending(connection, known):
        return report_missing(str(path), missing, known)
    if connection.pragma("application_id") != APPLICATION_ID:
        detail = f"{path} was restored from SQL text: it lacks the application_id of a ledger."
        return Finding("ledger", Verdict.WARN, detail, "The next start sets it.")
    return Finding("ledger", Verdict.OK, f"{path}, schema {known[-1].version:04}")


def _order(newest: datetime, now: datetime) -> Finding:
    if newest <= now + _SKEW:
        return Finding("order", Verdict.OK, "no time in the ledger is in the future")
    ahead = round((newest - now).total_seconds())
    detail = f"The ledger has times {ahead} s ahead of this clock."
    remedy = "Keep the clock right (NTP): retries and retention depend on it."
    return Finding("order", Verdict.WARN, detail, remedy)


def _log(path: Path) -> Finding:
    size = _log_bytes(path)
    if size > _LOG_ALARM:
        detail = f"The log {path}-wal has {size // _MIB} MiB: some program reads for very long."
        remedy = "End long reads of the file by other programs. A restart truncates the log."
        return Finding("log", Verdict.WARN, detail, remedy)
    advice = "a copy needs it too, and `ackbox backup FILE` includes it"
    return Finding("log", Verdict.OK, f"{path}-wal holds {size} bytes: {advice}")


def _pages(connection: apsw.Connection) -> Finding:
    report = connection.execute("PRAGMA integrity_check(5)").fetchall()
    if report == [("ok",)]:
        return Finding("pages", Verdict.OK, "every page and index is intact")
    lines = "; ".join(str(line) for (line,) in report)
    return Finding("pages", Verdict.FAIL, f"The ledger is damaged: {lines}.", RECOVER)


def _status_counts(connection: apsw.Connection) -> Finding:
    return check_counts(connection.execute(_sql("recount")), "back-pressure and metrics")


def _log_bytes(path: Path) -> int:
    try:
        return beside(path, "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _sql(name: str) -> str:
    return blocks()[name]
