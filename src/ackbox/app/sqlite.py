"""The backend for a ledger in one SQLite file."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe

import apsw

from ackbox.app.backends import Description, Process, names
from ackbox.config import Settings
from ackbox.errors import AckboxError, StoreError
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.stores.doctor_checks import as_failure
from ackbox.stores.sqlite import token
from ackbox.stores.sqlite.admin import doctor, offline
from ackbox.stores.sqlite.admin.live_backup import copy_beside_server
from ackbox.stores.sqlite.lock import Holder, find_holder
from ackbox.stores.sqlite.names import resolve_ledger
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore, open_store
from ackbox.telemetry import ignore_facts

_TOKEN_BYTES = 32


class SqliteBackend:
    """Implements `Backend`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = settings.db_path

    def describe(self) -> Description:
        return Description(str(self._path), f"SQLite {apsw.sqlite_lib_version()}", batches=1)

    async def open(self, process: Process) -> SqliteStore:
        """Open the store. Its writer thread is not restarted: an error that ends the thread may
        have damaged the file, so it ends the process."""
        store = await open_store(
            self._path,
            durability=self._settings.durability,
            clock=process.clock,
            observe=process.observe,
            on_fatal=process.on_fatal,
        )
        store.start_services(
            process.services, urls=process.urls, workers=self._settings.worker_count
        )
        return store

    async def wait_after(self, error: AckboxError) -> None:
        """Raise the error: waiting does not repair a disk."""
        raise error

    async def open_for_command(self, clock: Clock) -> SqliteStore:
        def ignore(error: AckboxError) -> None:
            """Do nothing: the caller of the failed operation gets the error."""

        offline.assert_readable(resolve_ledger(self._path))
        return await open_store(
            self._path,
            durability=self._settings.durability,
            clock=clock,
            observe=ignore_facts,
            on_fatal=ignore,
        )

    @asynccontextmanager
    async def open_reader(self) -> AsyncIterator[SqliteReader]:
        offline.assert_readable(resolve_ledger(self._path))
        reader = SqliteReader(self._path)
        try:
            yield reader
        finally:
            await reader.close()

    def ensure_token(self) -> tuple[str, bool]:
        ledger = resolve_ledger(self._path)
        return token.ensure_token(ledger, lambda: token_urlsafe(_TOKEN_BYTES))


class SqliteAdmin:
    """Implements `Admin`."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.db_path
        self._durability = settings.durability
        self._has_token = settings.api_token is not None

    def holder(self) -> Holder | None:
        return find_holder(self._path)

    def find_token(self) -> str | None:
        return token.read_token(self._file)

    def migrate(self) -> list[str]:
        return names(offline.migrate(self._file, durability=self._durability))

    def pending_migrations(self) -> list[str]:
        return names(offline.pending_migrations(self._file))

    def schema_sql(self) -> str:
        return offline.schema_sql()

    def examine(self, clock: Clock, mounts: str) -> Iterator[Finding]:
        try:
            file = self._file
        except StoreError as error:
            yield as_failure("ledger", error)
            return
        yield from doctor.examine(file, now=clock(), mounts=mounts)
        yield doctor.API_TOKEN_USED if self._has_token else doctor.examine_token(file)

    def examine_deep(self, tick: Callable[[float], None]) -> Iterator[Finding]:
        return doctor.examine_deep(self._file, tick) if self._file.exists() else iter(())

    def back_up(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        return offline.copy_ledger(self._file, target, durability=self._durability)

    def back_up_beside_server(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        return copy_beside_server(self._file, target)

    @property
    def _file(self) -> Path:
        return resolve_ledger(self._path)
