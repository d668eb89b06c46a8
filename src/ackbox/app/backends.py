"""`Backend`: what the composition root needs of a database that holds a ledger."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ackbox.errors import AckboxError
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.ports import Reader, Store
from ackbox.services import Services
from ackbox.stores.migrations import Migration
from ackbox.telemetry import Observer


class Holder(Protocol):
    """The process that holds a ledger exclusively, and the URL at which it responds."""

    @property
    def pid(self) -> int: ...

    @property
    def url(self) -> str | None: ...

    @property
    def workers(self) -> int | None: ...


class Backend(Protocol):
    """A database that holds a ledger. `batches` is how many ingest batches may be in flight at a
    time: SQLite has one writer; on PostgreSQL the next batch is sent while the server syncs the
    last. `shared` means that several processes may hold the ledger at once."""

    @property
    def name(self) -> str: ...

    @property
    def engine(self) -> str: ...

    @property
    def batches(self) -> int: ...

    @property
    def shared(self) -> bool: ...

    async def open_store(
        self,
        clock: Clock,
        observe: Observer,
        on_fatal: Callable[[AckboxError], None],
        services: Services,
    ) -> Store: ...

    def open_reader(self) -> Reader: ...

    async def assert_readable(self) -> None: ...

    async def assert_writable(self) -> None: ...

    def holder(self) -> Holder | None: ...

    def ensure_token(self) -> tuple[str, bool] | None:
        """Return the operator token kept with the ledger, and whether it was created now; None if
        this backend keeps no token. The caller must hold the ledger."""
        ...

    def find_token(self) -> str | None:
        """Return the operator token kept with the ledger, if there is one."""
        ...

    def copy(self, target: Path) -> AsyncGenerator[BackupProgress, None]: ...

    def copy_beside_server(self, target: Path) -> AsyncGenerator[BackupProgress, None]: ...

    def migrate(self) -> list[str]: ...

    def pending_migrations(self) -> list[str]: ...

    def schema_sql(self) -> str: ...

    def examine(self, clock: Clock, mounts: str) -> Iterator[Finding]: ...

    def examine_deep(self, tick: Callable[[float], None]) -> Iterator[Finding]: ...


def names(migrations: Sequence[Migration]) -> list[str]:
    return [f"{migration.version:04} {migration.name}" for migration in migrations]
