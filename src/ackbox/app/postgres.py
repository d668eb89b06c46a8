"""The backend for a ledger in a PostgreSQL database, which many instances share."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from ackbox.app.backends import names
from ackbox.config import Settings, show_address
from ackbox.errors import AckboxError, CommandFailed, SettingError
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.services import Services
from ackbox.telemetry import Observer

try:
    from ackbox.stores.postgres.admin import migrator, rights, transfer_in
    from ackbox.stores.postgres.admin.doctor import examine, examine_deep
    from ackbox.stores.postgres.database import Address, Database
    from ackbox.stores.postgres.read.reader import PostgresReader
    from ackbox.stores.postgres.store import PostgresStore, open_store
except ModuleNotFoundError as error:
    if error.name != "asyncpg":
        raise
    raise SettingError(
        "DATABASE_URL is set, but the PostgreSQL driver is not installed: "
        "pip install 'ackbox[postgres]'."
    ) from None

T = TypeVar("T")

_DEFAULT_SCHEMA = Settings.model_fields["database_schema"].default
_NO_COPY = "Back up a PostgreSQL ledger with pg_dump, or together with your server."


class PostgresBackend:
    engine = "PostgreSQL"
    batches = 2
    shared = True

    def __init__(self, settings: Settings, url: str) -> None:
        self.name = _name(url, settings.database_schema)
        self._settings = settings
        self._attach_queue = _find_queue(settings)
        self._address = Address(
            url,
            settings.durability,
            pooled=settings.database_pooling == "transaction",
            schema=settings.database_schema,
        )

    async def open_store(
        self,
        clock: Clock,
        observe: Observer,
        on_fatal: Callable[[AckboxError], None],
        services: Services,
    ) -> PostgresStore:
        store = await open_store(
            self._address,
            clock=clock,
            observe=observe,
            notify=self._settings.notify,
            services=services,
        )
        if self._attach_queue is not None:
            self._attach_queue(store, observe, services)
        return store

    def open_reader(self) -> PostgresReader:
        return PostgresReader(self._address, waiting_limit=self._settings.queue_maxsize + 1)

    async def assert_readable(self) -> None:
        await self._use_database(migrator.assert_current)
        await self._use_database(transfer_in.assert_no_unfinished_promotion)

    async def assert_writable(self) -> None:
        await self._use_database(rights.assert_writable)

    def holder(self) -> None:
        """Return None: no process holds the ledger exclusively, and commands use the database."""

    def ensure_token(self) -> None:
        """Return None: instances may run on many machines, and only a setting reaches them all."""

    def find_token(self) -> None:
        """Return None: see `ensure_token`."""

    def copy(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        raise CommandFailed(_NO_COPY)

    def copy_beside_server(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        raise CommandFailed(_NO_COPY)

    def migrate(self) -> list[str]:
        return names(asyncio.run(self._use_database(migrator.migrate)))

    def pending_migrations(self) -> list[str]:
        return names(asyncio.run(self._use_database(migrator.pending)))

    def schema_sql(self) -> str:
        return migrator.schema_sql(self._address.schema)

    def examine(self, clock: Clock, mounts: str) -> Iterator[Finding]:
        yield from examine(self._address, clock, notify=self._settings.notify)
        if self._settings.queue_url is not None:
            from ackbox.app.redis import examine_queue

            yield examine_queue(self._settings.queue_url.get_secret_value())

    def examine_deep(self, tick: Callable[[float], None]) -> Iterator[Finding]:
        return examine_deep(self._address, tick)

    async def _use_database(self, work: Callable[[Database], Awaitable[T]]) -> T:
        database = Database(self._address, size=1)
        try:
            return await work(database)
        finally:
            await database.close()


def _name(url: str, schema: str) -> str:
    """Return a name that tells the ledgers of one database apart."""
    address = show_address(url).partition("?")[0]
    return address if schema == _DEFAULT_SCHEMA else f"{address} (schema {schema})"


AttachQueue = Callable[[PostgresStore, Observer, Services], None]


def _find_queue(settings: Settings) -> AttachQueue | None:
    if settings.queue_url is None:
        return None
    from ackbox.app.redis import attach_queue

    return partial(attach_queue, settings.queue_url.get_secret_value())
