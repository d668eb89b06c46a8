"""The composition root: the only package that sees concrete stores and exporters."""

import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from ackbox.app.backends import Backend, Holder
from ackbox.clock import ClockSteps, SteadyClock, uptime
from ackbox.config import Settings, choose_log_format
from ackbox.errors import AckboxError, SettingError
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.ports import Reader, Store
from ackbox.services import Services
from ackbox.telemetry import Observer, combine_observers, ignore_facts

if TYPE_CHECKING:
    from ackbox.exporters.loggers import Logger

__all__ = [
    "App",
    "Holder",
    "copy_beside_server",
    "copy_ledger",
    "examine_ledger",
    "examine_ledger_deep",
    "find_operator_token",
    "is_shared",
    "ledger_name",
    "migrate_ledger",
    "open_ledger_to_read",
    "open_ledger_to_write",
    "pending_migrations",
    "running_server",
    "schema_sql",
    "utc_now",
]

SOURCES = frozenset({"webhooks"})
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
    the log and the metrics do. `ledger_origin` names what chose the ledger, for the log."""

    def __init__(
        self,
        settings: Settings,
        *,
        ledger_origin: str = "unknown",
        clock: Clock | None = None,
        guest: bool = False,
        observers: Sequence[Observer] = (),
    ) -> None:
        # Commands do not need structlog and prometheus_client, which take long to import.
        from ackbox.exporters.failures import count_and_log
        from ackbox.exporters.logs import LogObserver
        from ackbox.exporters.prometheus import PrometheusMetrics

        self.settings = settings
        self.ledger_origin = ledger_origin
        self.clock = clock or SteadyClock(utc_now, uptime)
        self.clock_steps = ClockSteps(utc_now, uptime)
        self.guest = guest
        self.backend = choose_backend(settings)
        self.packages: set[str] = set()
        """The application's packages. Their log lines are shown, wherever they are installed."""
        self.logger = _choose_logger(settings, self.packages, guest)
        self.metrics = PrometheusMetrics(self.clock, SOURCES)
        self.on_observer_error = count_and_log(self.metrics.observe, self.logger)
        self.observe = combine_observers(
            self.metrics.observe,
            LogObserver(self.logger).observe,
            *observers,
            on_error=self.on_observer_error,
        )
        self.services = Services(self.observe, clock=self.clock)

    async def open_store(
        self, on_fatal: Callable[[AckboxError], None], notice: Observer = ignore_facts
    ) -> Store:
        observe = combine_observers(self.observe, notice, on_error=self.on_observer_error)
        return await self.backend.open_store(self.clock, observe, on_fatal, self.services)

    def open_reader(self) -> Reader:
        return self.backend.open_reader()

    def ensure_operator_token(self) -> SecretStr | None:
        """Return `API_TOKEN`, or else the token kept with the ledger. This process must hold the
        ledger."""
        if self.settings.api_token is not None:
            return self.settings.api_token
        if (kept := self.backend.ensure_token()) is None:
            return None
        token, is_new = kept
        if is_new:
            self.logger.info("operator token created", ledger=self.backend.name)
        return SecretStr(token)


def choose_backend(settings: Settings) -> Backend:
    """Return the backend that the settings name. Only that backend's modules are imported."""
    if settings.database_url is None:
        if settings.queue_url is not None:
            raise SettingError(_QUEUE_WITH_SQLITE)
        from ackbox.app.sqlite import SqliteBackend

        return SqliteBackend(settings)
    from ackbox.app.postgres import PostgresBackend

    return PostgresBackend(settings, settings.database_url.get_secret_value())


def _choose_logger(settings: Settings, packages: AbstractSet[str], guest: bool) -> "Logger":
    from ackbox.exporters.loggers import guest_logger, set_up_logging

    if guest:
        return guest_logger(settings.log_level)
    log_format = choose_log_format(settings.log_format, isatty=sys.stderr.isatty())
    return set_up_logging(settings.log_level, log_format, packages=packages)


def ledger_name(settings: Settings) -> str:
    """Return the name of the ledger in messages. It contains no secret."""
    return choose_backend(settings).name


def is_shared(settings: Settings) -> bool:
    """Whether several processes may hold the ledger at once."""
    return choose_backend(settings).shared


async def open_ledger_to_read(settings: Settings) -> Reader:
    """Open the ledger for reading, also beside a running server. Raise `StoreError` if this release
    cannot read it."""
    backend = choose_backend(settings)
    await backend.assert_readable()
    return backend.open_reader()


async def open_ledger_to_write(settings: Settings, *, clock: Clock = utc_now) -> Store:
    """Open the ledger for a command. Raise `LedgerInUse` if a server holds it exclusively. Unlike a
    server, this does not wait for a ledger that takes no writes now."""
    backend = choose_backend(settings)
    await backend.assert_readable()
    await backend.assert_writable()

    def ignore(error: AckboxError) -> None:
        """Do nothing: the caller of the failed operation gets the error."""

    return await backend.open_store(
        clock, ignore_facts, ignore, Services(ignore_facts, clock=clock)
    )


def running_server(settings: Settings) -> Holder | None:
    """Return the process that holds the ledger exclusively, if there is one."""
    return choose_backend(settings).holder()


def find_operator_token(settings: Settings) -> SecretStr | None:
    """Return `API_TOKEN`, else the token that the server of this ledger has created."""
    if settings.api_token is not None:
        return settings.api_token
    token = choose_backend(settings).find_token()
    return None if token is None else SecretStr(token)


def copy_ledger(settings: Settings, target: Path) -> AsyncGenerator[BackupProgress, None]:
    """Copy a ledger that no server holds. Raise `LedgerInUse` if a server holds it."""
    return choose_backend(settings).copy(target)


def copy_beside_server(settings: Settings, target: Path) -> AsyncGenerator[BackupProgress, None]:
    """Copy a ledger that a server holds, as it is now, without using that server."""
    return choose_backend(settings).copy_beside_server(target)


def migrate_ledger(settings: Settings) -> list[str]:
    """Apply migrations and return their names. Raise `LedgerInUse` if a server holds the ledger
    exclusively."""
    return choose_backend(settings).migrate()


def pending_migrations(settings: Settings) -> list[str]:
    return choose_backend(settings).pending_migrations()


def schema_sql(settings: Settings) -> str:
    return choose_backend(settings).schema_sql()


def examine_ledger(settings: Settings, *, mounts: str, clock: Clock = utc_now) -> Iterator[Finding]:
    return choose_backend(settings).examine(clock, mounts)


def examine_ledger_deep(settings: Settings, tick: Callable[[float], None]) -> Iterator[Finding]:
    return choose_backend(settings).examine_deep(tick)
