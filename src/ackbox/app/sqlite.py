"""The backend for a ledger in one SQLite file."""

from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from secrets import token_urlsafe

import apsw

from ackbox.app.backends import names
from ackbox.config import Settings
from ackbox.errors import AckboxError, StoreError
from ackbox.model import BackupProgress, Clock, Finding
from ackbox.services import Services
from ackbox.stores.doctor_checks import as_failure
from ackbox.stores.sqlite import token
from ackbox.stores.sqlite.admin import doctor, offline
from ackbox.stores.sqlite.admin.live_backup import copy_beside_server
from ackbox.stores.sqlite.lock import Holder, find_holder
from ackbox.stores.sqlite.names import resolve_ledger
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore, open_store
from ackbox.telemetry import Observer

_TOKEN_BYTES = 32


class SqliteBackend:
    batches = 1
    shared = False

    def __init__(self, settings: Settings) -> None:
        self.name = str(settings.db_path)
        self.engine = f"SQLite {apsw.sqlite_lib_version()}"
        self._path = settings.db_path
        self._durability = settings.durability
        self._has_token = settings.api_token is not None
        self._store: SqliteStore | None = None

    async def open_store(
        self,
        clock: Clock,
        observe: Observer,
        on_fatal: Callable[[AckboxError], None],
        services: Services,
    ) -> SqliteStore:
        """Open the store. Its writer thread is not restarted: an error that ends the thread may
        have damaged the file, so such an error ends the process."""
        self._store = await open_store(
            self._path,
            durability=self._durability,
            clock=clock,
            observe=observe,
            on_fatal=on_fatal,
        )
        return self._store

    def open_reader(self) -> SqliteReader:
        return SqliteReader(self._path) if self._store is None else self._store.open_reader()

    async def assert_readable(self) -> None:
        offline.assert_readable(self._file)

    async def assert_writable(self) -> None:
        """Check nothing: opening the ledger fails at once if the file cannot be written."""

    def holder(self) -> Holder | None:
        return find_holder(self._path)

    def ensure_token(self) -> tuple[str, bool]:
        return token.ensure_token(self._file, lambda: token_urlsafe(_TOKEN_BYTES))

    def find_token(self) -> str | None:
        return token.read_token(self._file)

    def copy(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        return offline.copy_ledger(self._file, target, durability=self._durability)

    def copy_beside_server(self, target: Path) -> AsyncGenerator[BackupProgress, None]:
        return copy_beside_server(self._file, target)

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

    @property
    def _file(self) -> Path:
        return resolve_ledger(self._path)
