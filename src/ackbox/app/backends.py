"""`Backend` and `Admin`: what the composition root needs of a database that holds a ledger."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ackbox.errors import AckboxError
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.ports import Reader, Store
from ackbox.services import Services
from ackbox.stores.migrations import Migration
from ackbox.telemetry import Observer

NO_COPY = "Back up a PostgreSQL ledger with pg_dump, or together with your server."


class Description(Struct, frozen=True):
    """A ledger in words: its name contains no secret. `batches` is how many ingest batches may be
    in flight at a time: SQLite has one writer; on PostgreSQL the next batch is sent while the
    server syncs the last."""

    name: str
    engine: str
    batches: int


class Process(Struct, frozen=True):
    """The server process that opens a ledger. Its supervisor runs the store's own services,
    `on_fatal` ends the process, and `urls` brings each URL at which it listens."""

    clock: Clock
    observe: Observer
    services: Services
    on_fatal: Callable[[AckboxError], None]
    urls: "asyncio.Queue[str]"


class Backend(Protocol):
    """Describes and opens a ledger."""

    def describe(self) -> Description: ...

    async def open(self, process: Process) -> Store:
        """Open the ledger for a server, which may wait for a database that cannot be reached."""
        ...

    async def wait_after(self, error: AckboxError) -> None:
        """Wait before a start that failed with this error goes on; raise the error again if waiting
        does not help."""
        ...

    async def open_for_command(self, clock: Clock) -> Store:
        """Open the ledger for a command, which does not wait. Raise `LedgerInUse` if a server holds
        it exclusively."""
        ...

    def open_reader(self) -> AbstractAsyncContextManager[Reader]:
        """Open the ledger for reading, also beside a running server. Raise `StoreError` if this
        release cannot read it."""
        ...

    def ensure_token(self) -> tuple[str, bool] | None:
        """Return the operator token kept with the ledger, and whether it was created now; None if
        this backend keeps no token. The caller must hold the ledger."""
        ...


class Holder(Protocol):
    """The process that holds a ledger exclusively, and the URL at which it responds."""

    @property
    def pid(self) -> int: ...

    @property
    def url(self) -> str | None: ...

    @property
    def workers(self) -> int | None: ...


class Shared(Struct, frozen=True):
    """Many processes may hold the ledger at once, and no process knows all of them."""


class Admin(Protocol):
    """Migrates, examines and backs up a ledger that this process does not hold."""

    def holder(self) -> Holder | Shared | None:
        """Return the process that holds the ledger now; None if the ledger is free."""
        ...

    def find_token(self) -> str | None:
        """Return the operator token kept with the ledger, if there is one."""
        ...

    def migrate(self) -> list[str]:
        """Apply migrations and return their names. Raise `LedgerInUse` if a server holds the ledger
        exclusively."""
        ...

    def pending_migrations(self) -> list[str]: ...

    def schema_sql(self) -> str: ...

    def examine(self, clock: Clock, mounts: str) -> Iterator[Finding]: ...

    def examine_deep(self, tick: Callable[[float], None]) -> Iterator[Finding]: ...

    def back_up(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        """Copy a ledger that no server holds. Raise `LedgerInUse` if one does."""
        ...

    def back_up_beside_server(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        """Copy a ledger that a server holds, as it is now, without using that server."""
        ...


def names(migrations: Sequence[Migration]) -> list[str]:
    return [f"{migration.version:04} {migration.name}" for migration in migrations]
