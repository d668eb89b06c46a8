"""The backend for a ledger in a PostgreSQL database, which many instances share."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from ackbox.app.backends import NO_COPY, Description, Process, Shared, names
from ackbox.config import Settings, show_address
from ackbox.errors import AckboxError, CommandFailed, SettingError
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.ports import Relay
from ackbox.telemetry import Observer, ignore_facts

try:
    from ackbox.stores.postgres.admin import migrator, rights, transfer_in
    from ackbox.stores.postgres.admin.doctor import examine, examine_deep
    from ackbox.stores.postgres.database import Address, Database
    from ackbox.stores.postgres.read.reader import PostgresReader
    from ackbox.stores.postgres.store import PostgresStore, StoreOptions, open_store
except ModuleNotFoundError as error:
    if error.name != "asyncpg":
        raise
    raise SettingError(
        "DATABASE_URL is set, but the PostgreSQL driver is not installed: "
        "pip install 'ackbox[postgres]'."
    ) from None

T = TypeVar("T")

_DEFAULT_SCHEMA = Settings.model_fields["database_schema"].default
_RETRY_SECONDS = 1.0


class PostgresBackend:
    """Implements `Backend`."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._settings = settings
        self._address = _address(settings, url)
        self._make_relay = _find_relay(settings)

    def describe(self) -> Description:
        address, schema = show_address(self._address.url).partition("?")[0], self._address.schema
        name = address if schema == _DEFAULT_SCHEMA else f"{address} (schema {schema})"
        return Description(name, "PostgreSQL", batches=2)

    async def open(self, process: Process) -> PostgresStore:
        return await open_store(
            self._address,
            clock=process.clock,
            observe=process.observe,
            options=self._options(process.observe),
            services=process.services,
        )

    async def wait_after(self, error: AckboxError) -> None:
        await asyncio.sleep(_RETRY_SECONDS)

    async def open_for_command(self, clock: Clock) -> PostgresStore:
        await self._assert_readable()
        await _use_database(self._address, rights.assert_writable)
        return await open_store(
            self._address, clock=clock, observe=ignore_facts, options=self._options(ignore_facts)
        )

    @asynccontextmanager
    async def open_reader(self) -> AsyncIterator[PostgresReader]:
        await self._assert_readable()
        reader = PostgresReader(self._address, waiting_limit=self._waiting_limit)
        try:
            yield reader
        finally:
            await reader.close()

    def ensure_token(self) -> None:
        """Return None: instances may run on many machines, and only a setting reaches them all."""

    async def _assert_readable(self) -> None:
        await _use_database(self._address, migrator.assert_current)
        await _use_database(self._address, transfer_in.assert_no_unfinished_promotion)

    def _options(self, observe: Observer) -> StoreOptions:
        relay = None if self._make_relay is None else self._make_relay(observe)
        return StoreOptions(self._settings.notify, relay, self._waiting_limit)

    @property
    def _waiting_limit(self) -> int:
        return self._settings.queue_maxsize + 1


class PostgresAdmin:
    """Implements `Admin`."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._settings = settings
        self._address = _address(settings, url)

    def holder(self) -> Shared:
        return Shared()

    def find_token(self) -> None:
        """Return None: see `PostgresBackend.ensure_token`."""

    def migrate(self) -> list[str]:
        return names(asyncio.run(_use_database(self._address, migrator.migrate)))

    def pending_migrations(self) -> list[str]:
        return names(asyncio.run(_use_database(self._address, migrator.pending)))

    def schema_sql(self) -> str:
        return migrator.schema_sql(self._address.schema)

    def examine(self, clock: Clock, mounts: str) -> Iterator[Finding]:
        yield from examine(self._address, clock, notify=self._settings.notify)
        if self._settings.queue_url is not None:
            from ackbox.app.redis import examine_stream

            yield examine_stream(self._settings.queue_url.get_secret_value())

    def examine_deep(self, tick: Callable[[float], None]) -> Iterator[Finding]:
        return examine_deep(self._address, tick)

    def back_up(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        raise CommandFailed(NO_COPY)

    def back_up_beside_server(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        raise CommandFailed(NO_COPY)


def _address(settings: Settings, url: str) -> Address:
    return Address(
        url,
        settings.durability,
        pooled=settings.database_pooling == "transaction",
        schema=settings.database_schema,
    )


async def _use_database(address: Address, work: Callable[[Database], Awaitable[T]]) -> T:
    database = Database(address, size=1)
    try:
        return await work(database)
    finally:
        await database.close()


def _find_relay(settings: Settings) -> Callable[[Observer], Relay] | None:
    if settings.queue_url is None:
        return None
    from ackbox.app.redis import Stream

    return partial(Stream, settings.queue_url.get_secret_value())
