"""The composition root: the only module that sees concrete stores and exporters."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import apsw

from ackbox.config import Settings, choose_log_format
from ackbox.errors import AckboxError, SettingError
from ackbox.exporters.logs import LogObserver, set_up_logging
from ackbox.exporters.prometheus import CONTENT_TYPE, PrometheusMetrics
from ackbox.model import Clock
from ackbox.stores.sqlite.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore, open_store
from ackbox.telemetry import to_all

SOURCES = frozenset({"webhooks"})


def utc_now() -> datetime:
    return datetime.now(UTC)


class App:
    """The parts of one process, chosen by its settings; nothing is opened yet."""

    metrics_content_type = CONTENT_TYPE

    def __init__(self, settings: Settings, *, clock: Clock = utc_now) -> None:
        refuse_what_is_not_built(settings)
        log_format = choose_log_format(settings.log_format, isatty=sys.stderr.isatty())
        self.settings = settings
        self.clock = clock
        self.logger = set_up_logging(settings.log_level, log_format)
        self.metrics = PrometheusMetrics(clock, SOURCES)
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


def refuse_what_is_not_built(settings: Settings) -> None:
    for name in ("database_url", "queue_url"):
        if getattr(settings, name) is not None:
            raise SettingError(
                f"{name.upper()} is set, but this release keeps events in SQLite only: unset it."
            )
