"""A ledger in a PostgreSQL database, which many instances share."""

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
    from ackbox.stores.postgres import migrator, rights, transfer_in
    from ackbox.stores.postgres.database import Address, Database
    from ackbox.stores.postgres.doctor import examine, examine_deep
    from ackbox.stores.postgres.reader import PostgresReader
    from ackbox.stores.postgres.store import PostgresStore, open_store
except ModuleNotFoundError as error:
    if error.name != "asyncpg":
        raise
    raise SettingError(
        "DATABASE_URL is set, but the PostgreSQL driver is not installed: "
        "pip install 'ackbox[postgres]'."
    ) from None

T = TypeVar("T")

_NO_COPY = "A PostgreSQL ledger is backed up with pg_dump, or as your server is."


class PostgresBackend:
    engine = "PostgreSQL"
    batches = 2
    shared = True

    def __init__(self, settings: Settings, url: str) -> None:
        self.name = show_address(url).partition("?")[0]
        self._settings = settings
        self._put_queue_before = _find_queue(settings)
        self._address = Address(
            url, settings.durability, pooled=settings.database_pooling == "transaction"
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
        if self._put_queue_before is not None:
            self._put_queue_before(store, observe, services)
        return store

    def open_reader(self) -> PostgresReader:
        return PostgresReader(self._address, waiting_limit=self._settings.queue_maxsize + 1)

    async def assert_readable(self) -> None:
        await self._ask(migrator.assert_current)
        await self._ask(transfer_in.assert_no_unfinished_promotion)

    async def assert_writable(self) -> None:
        await self._ask(rights.assert_writable)

    def holder(self) -> None:
        """Nobody holds it for itself: a command goes to the database."""

    def ensure_token(self) -> None:
        """Instances on many machines share the database: only a setting reaches them all."""

    def find_token(self) -> None:
        """There is none: see `ensure_token`."""

    def copy(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        raise CommandFailed(_NO_COPY)

    def copy_beside_server(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        raise CommandFailed(_NO_COPY)

    def migrate(self) -> list[str]:
        return names(asyncio.run(self._ask(migrator.migrate)))

    def pending_migrations(self) -> list[str]:
        return names(asyncio.run(self._ask(migrator.pending)))

    def schema_sql(self) -> str:
        return migrator.schema_sql()

    def examine(self, clock: Clock, mounts: str) -> Iterator[Finding]:
        yield from examine(self._address, clock, notify=self._settings.notify)
        if self._settings.queue_url is not None:
            from ackbox.app.redis import examine_queue

            yield examine_queue(self._settings.queue_url.get_secret_value())

    def examine_deep(self, tick: Callable[[float], None]) -> Iterator[Finding]:
        return examine_deep(self._address, tick)

    async def _ask(self, work: Callable[[Database], Awaitable[T]]) -> T:
        database = Database(self._address, size=1)
        try:
            return await work(database)
        finally:
            await database.close()


PutQueueBefore = Callable[[PostgresStore, Observer, Services], None]


def _find_queue(settings: Settings) -> PutQueueBefore | None:
    if settings.queue_url is None:
        return None
    from ackbox.app.redis import put_queue_before

    return partial(put_queue_before, settings.queue_url.get_secret_value())
