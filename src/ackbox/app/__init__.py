"""The composition root: the only package that sees concrete stores and exporters."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import SecretStr

from ackbox.app.backends import Admin, Backend, Description, Holder, Process, Shared
from ackbox.app.sources import (
    NO_SOURCES,
    Sources,
    build_sources,
    declare_sources,
    open_source,
    warn_of_open_sources,
)
from ackbox.clock import ClockSteps, SteadyClock, uptime
from ackbox.config import Settings, choose_log_format
from ackbox.errors import AckboxError, SettingError
from ackbox.model import Clock
from ackbox.ports import Store
from ackbox.services import Services
from ackbox.sources.declaration import SourceDeclaration
from ackbox.sources.webhook import SignedWebhook
from ackbox.telemetry import Observer, combine_observers

if TYPE_CHECKING:
    from ackbox.exporters.loggers import Logger

__all__ = [
    "NO_SOURCES",
    "App",
    "Description",
    "Holder",
    "Shared",
    "SignedWebhook",
    "SourceDeclaration",
    "Sources",
    "build_sources",
    "choose_admin",
    "choose_backend",
    "declare_sources",
    "find_operator_token",
    "open_source",
    "utc_now",
    "warn_of_open_sources",
]

_QUEUE_WITH_SQLITE = (
    "QUEUE_URL is for the many instances that share a PostgreSQL database: set "
    "ACKBOX_DATABASE_URL too, or give no QUEUE_URL. A SQLite ledger has one process, "
    "which needs no queue."
)


def utc_now() -> datetime:
    return datetime.now(UTC)


class App:
    """The parts of one process, chosen by its settings; nothing is opened yet. A `guest` runs in
    the process of another app, and leaves that app's logging alone. `observers` see every fact, as
    the log and the metrics do. `ledger_origin` names what chose the ledger, for the log. Every
    `unpark_seconds`, events that have a handler now are unparked."""

    def __init__(
        self,
        settings: Settings,
        *,
        sources: Sources = NO_SOURCES,
        ledger_origin: str = "unknown",
        clock: Clock | None = None,
        guest: bool = False,
        observers: Sequence[Observer] = (),
        unpark_seconds: float = 60.0,
    ) -> None:
        # Commands do not need structlog and prometheus_client, which take long to import.
        from ackbox.exporters.failures import count_and_log
        from ackbox.exporters.logs import LogObserver
        from ackbox.exporters.prometheus import PrometheusMetrics

        self.settings = settings
        self.sources = sources
        self.ledger_origin = ledger_origin
        self.clock = clock or SteadyClock(utc_now, uptime)
        self.clock_steps = ClockSteps(utc_now, uptime)
        self.guest = guest
        self.unpark_seconds = unpark_seconds
        self.backend = choose_backend(settings)
        self.packages: set[str] = set()
        """The application's packages. Their log lines are shown, wherever they are installed."""
        self.logger = _choose_logger(settings, self.packages, guest)
        self.metrics = PrometheusMetrics(self.clock, sources.labels)
        self.on_observer_error = count_and_log(self.metrics.observe, self.logger)
        self.observe = combine_observers(
            self.metrics.observe,
            LogObserver(self.logger).observe,
            *observers,
            on_error=self.on_observer_error,
        )
        self.services = Services(self.observe, clock=self.clock)

    async def open_store(
        self,
        on_fatal: Callable[[AckboxError], None],
        notice: Observer,
        urls: "asyncio.Queue[str]",
    ) -> Store:
        observe = combine_observers(self.observe, notice, on_error=self.on_observer_error)
        return await self.backend.open(Process(self.clock, observe, self.services, on_fatal, urls))

    def ensure_operator_token(self) -> SecretStr | None:
        """Return `API_TOKEN`, or else the token kept with the ledger. This process must hold the
        ledger."""
        if self.settings.api_token is not None:
            return self.settings.api_token
        if (kept := self.backend.ensure_token()) is None:
            return None
        token, is_new = kept
        if is_new:
            self.logger.info("operator token created", ledger=self.backend.describe().name)
        return SecretStr(token)


def choose_backend(settings: Settings) -> Backend:
    """Return the backend that the settings name. Only that backend's modules are imported."""
    if settings.database_url is None:
        _refuse_queue(settings)
        from ackbox.app.sqlite import SqliteBackend

        return SqliteBackend(settings)
    from ackbox.app.postgres import PostgresBackend

    return PostgresBackend(settings, settings.database_url.get_secret_value())


def choose_admin(settings: Settings) -> Admin:
    """Return what migrates, examines and backs up the ledger that the settings name."""
    if settings.database_url is None:
        _refuse_queue(settings)
        from ackbox.app.sqlite import SqliteAdmin

        return SqliteAdmin(settings)
    from ackbox.app.postgres import PostgresAdmin

    return PostgresAdmin(settings, settings.database_url.get_secret_value())


def _refuse_queue(settings: Settings) -> None:
    if settings.queue_url is not None:
        raise SettingError(_QUEUE_WITH_SQLITE)


def _choose_logger(settings: Settings, packages: AbstractSet[str], guest: bool) -> "Logger":
    from ackbox.exporters.loggers import guest_logger, set_up_logging

    if guest:
        return guest_logger(settings.log_level)
    log_format = choose_log_format(settings.log_format, isatty=sys.stderr.isatty())
    return set_up_logging(settings.log_level, log_format, packages=packages)


def find_operator_token(settings: Settings) -> SecretStr | None:
    """Return `API_TOKEN`, else the token that the server of this ledger has created."""
    if settings.api_token is not None:
        return settings.api_token
    token = choose_admin(settings).find_token()
    return None if token is None else SecretStr(token)
