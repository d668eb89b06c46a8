"""The composition root: the only module that sees concrete stores and exporters."""

import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import apsw

from ackbox.clock import ClockSteps, SteadyClock, uptime
from ackbox.config import Settings, choose_log_format
from ackbox.errors import AckboxError, SettingError
from ackbox.exporters.logs import Logger, LogObserver, guest_logger, set_up_logging
from ackbox.exporters.prometheus import CONTENT_TYPE, PrometheusMetrics
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.ports import Reader
from ackbox.stores.sqlite import doctor, offline
from ackbox.stores.sqlite.lock import Holder, find_holder
from ackbox.stores.sqlite.migrations import Migration
from ackbox.stores.sqlite.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore, open_store
from ackbox.telemetry import to_all, to_nobody

SOURCES = frozenset({"webhooks"})


def utc_now() -> datetime:
    return datetime.now(UTC)


class App:
    """The parts of one process, chosen by its settings; nothing is opened yet. A `guest` lives in
    the process of another app, and leaves that app's logging alone."""

    metrics_content_type = CONTENT_TYPE

    def __init__(
        self, settings: Settings, *, clock: Clock | None = None, guest: bool = False
    ) -> None:
        refuse_what_is_not_built(settings)
        self.settings = settings
        self.clock = clock or SteadyClock(utc_now, uptime)
        self.clock_steps = ClockSteps(utc_now, uptime)
        self.guest = guest
        self.logger = guest_logger(settings.log_level) if guest else _own_logger(settings)
        self.metrics = PrometheusMetrics(self.clock, SOURCES)
        self.observe = to_all(self.metrics.observe, LogObserver(self.logger).observe)
        self.sqlite_version = apsw.sqlite_lib_version()

    async def open_store(self, on_fatal: Callable[[AckboxError], None]) -> SqliteStore:
        return await open_store(
            self.settings.db_path,
            durability=self.settings.durability,
            clock=self.clock,
            observe=self.observe,
            on_fatal=on_fatal,
        )

    def open_reader(self) -> SqliteReader:
        return SqliteReader(self.settings.db_path)


def _own_logger(settings: Settings) -> Logger:
    log_format = choose_log_format(settings.log_format, isatty=sys.stderr.isatty())
    return set_up_logging(settings.log_level, log_format)


def open_ledger_to_read(settings: Settings) -> Reader:
    """Whether or not a server runs; raises `StoreError` unless this release can read it."""
    path = _ledger_path(settings)
    offline.assert_readable(path)
    return SqliteReader(path)


async def open_ledger_to_write(settings: Settings, *, clock: Clock = utc_now) -> SqliteStore:
    """For a command, without a server; raises `LedgerInUse` if one runs."""
    path = _ledger_path(settings)
    offline.assert_readable(path)

    def ignore(error: AckboxError) -> None:
        """It reaches whoever waits for the operation that met it."""

    return await open_store(
        path,
        durability=settings.durability,
        clock=clock,
        observe=to_nobody,
        on_fatal=ignore,
    )


def running_server(settings: Settings) -> Holder | None:
    """The process that holds the ledger now."""
    return find_holder(_ledger_path(settings))


def copy_ledger(settings: Settings, target: Path) -> AsyncGenerator[BackupProgress, None]:
    """Without a server; raises `LedgerInUse` if one runs."""
    path = _ledger_path(settings)
    return offline.copy_ledger(path, target, durability=settings.durability)


def migrate_ledger(settings: Settings) -> list[str]:
    """Returns what was applied; raises `LedgerInUse` if a server runs."""
    path = _ledger_path(settings)
    return _names(offline.migrate(path, durability=settings.durability))


def pending_migrations(settings: Settings) -> list[str]:
    return _names(offline.pending_migrations(_ledger_path(settings)))


def schema_sql() -> str:
    return offline.schema_sql()


def examine_ledger(settings: Settings, *, mounts: str, clock: Clock = utc_now) -> Iterator[Finding]:
    return doctor.examine(_ledger_path(settings), now=clock(), mounts=mounts)


def examine_ledger_deep(settings: Settings, tick: Callable[[float], None]) -> Iterator[Finding]:
    return doctor.examine_deep(_ledger_path(settings), tick)


def _ledger_path(settings: Settings) -> Path:
    """Of the file itself: what lies beside it does not lie beside a link to it."""
    refuse_what_is_not_built(settings)
    return settings.db_path.resolve()


def _names(migrations: Sequence[Migration]) -> list[str]:
    return [f"{migration.version:04} {migration.name}" for migration in migrations]


def refuse_what_is_not_built(settings: Settings) -> None:
    for name in ("database_url", "queue_url"):
        if getattr(settings, name) is not None:
            raise SettingError(
                f"{name.upper()} is set, but this release keeps events in SQLite only: unset it."
            )
