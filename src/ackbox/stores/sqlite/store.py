"""The writing side of the ledger in one SQLite file. Everything goes through the writer thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

import apsw

from ackbox.errors import AckboxError, StorageFull
from ackbox.model import (
    Caller,
    Clock,
    DiscardKind,
    EventId,
    InboxMigration,
    PruneResult,
    PurgeResult,
    Receipt,
    ReplayKind,
    RetentionPolicy,
    Status,
    Submission,
    TombstonePass,
    to_text,
)
from ackbox.services import Services
from ackbox.stores.sqlite.admin.backup import Backup
from ackbox.stores.sqlite.connections import Connect, open_writer
from ackbox.stores.sqlite.files import lock_ledger, open_ledger
from ackbox.stores.sqlite.foreign_connections import refuse_in_process
from ackbox.stores.sqlite.ledger_files import LedgerFiles, open_files
from ackbox.stores.sqlite.limits import LIMITS, Limits
from ackbox.stores.sqlite.lock import LedgerLock
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.services import SpaceReclaimer, start_services
from ackbox.stores.sqlite.statements import Statements, blocks
from ackbox.stores.sqlite.write import replay, retention, schema
from ackbox.stores.sqlite.write.disk_space import DiskSpace
from ackbox.stores.sqlite.write.effects import Effects
from ackbox.stores.sqlite.write.quarantine import SqliteQuarantine, prune_quarantine
from ackbox.stores.sqlite.write.queue import SqliteQueue
from ackbox.stores.sqlite.write.record import RecordOperations
from ackbox.stores.sqlite.write.recovery import recover
from ackbox.stores.sqlite.write.reserve import Reserve, free_bytes
from ackbox.stores.sqlite.write.submissions import SqliteSubmissions
from ackbox.stores.sqlite.write.writer import Writer
from ackbox.telemetry import Observer


async def open_store(  # noqa: PLR0913 - the last four are for tests
    path: Path,
    *,
    durability: str,
    clock: Clock,
    observe: Observer,
    on_fatal: Callable[[AckboxError], None],
    free_bytes: Callable[[Path], int] = free_bytes,
    vfs: str | None = None,
    limits: Limits = LIMITS,
    monotonic: Callable[[], float] = monotonic,
) -> "SqliteStore":
    """Take the lock, check and migrate the file, start the writer, and make the events claimable
    that a dead process left in `processing`. Raise `StoreError` if that fails."""
    lock = lock_ledger(path)
    path = lock.ledger
    reserve = Reserve(path, free_bytes)
    files = LedgerFiles(lock)
    connect = partial(open_ledger, path, durability, vfs, observe=observe, limits=limits)
    try:
        reserve.give_up_if_needed()  # opening may need the space
        connection = await _open_in_thread(connect, files)
    except BaseException:
        lock.release()
        raise

    reconnect = partial(open_writer, path, durability=durability, vfs=vfs, limits=limits)
    start_writer = partial(Writer, limits=limits, monotonic=monotonic)
    writer = start_writer(connection, reconnect, files, observe=observe, on_fatal=on_fatal)
    disk_space = DiskSpace(reserve, writer, observe)
    store = SqliteStore(lock, writer, disk_space, clock=clock, observe=observe, limits=limits)
    try:
        disk_space.check()
        await recover(writer, clock(), rows=limits.recovery_rows)
    except BaseException:
        await store.close()
        raise
    return store


async def _open_in_thread(connect: Connect, files: LedgerFiles) -> apsw.Connection:
    """Open in a thread. A cancelled start waits for that thread, and holds the lock until then."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_files, connect, files))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        (opened,) = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(opened, apsw.Connection):
            files.shared_locks.release()
            opened.close()
            files.shared_locks.close()
        raise


class SqliteStore:
    """Implements `Store`; holds the lock of the file until `close`."""

    def __init__(
        self,
        lock: LedgerLock,
        writer: Writer,
        disk_space: DiskSpace,
        *,
        clock: Clock,
        observe: Observer,
        limits: Limits,
    ) -> None:
        self.queue = SqliteQueue(writer, Effects(), clock)
        self.quarantine = SqliteQuarantine(writer, disk_space, clock)
        self.reader = SqliteReader(lock.ledger)
        writer.readers.append(self.reader.connections)  # closed before the ledger is reopened
        self.disk_space = disk_space
        self._lock = lock
        self._writer = writer
        self._clock = clock
        self._limits = limits
        self._reclaimer = SpaceReclaimer(writer, observe)
        self._services: list[asyncio.Task[None]] = []
        self._operations = RecordOperations(blocks())
        self.submissions = SqliteSubmissions(
            writer, self.queue, self._operations, disk_space, clock
        )
        self._allow_foreign = refuse_in_process(lock.ledger)

    def start_services(
        self, services: Services, *, urls: "asyncio.Queue[str]", workers: int
    ) -> None:
        """Run the background loops of a server; see `ackbox.stores.sqlite.services`."""
        self._services = start_services(
            services,
            disk_space=self.disk_space,
            reclaimer=self._reclaimer,
            lock=self._lock,
            urls=urls,
            workers=workers,
        )

    @property
    def unavailable_reason(self) -> str | None:
        return self._writer.unavailable_reason or self.disk_space.full_reason

    async def record(self, submissions: Sequence[Submission]) -> list[Receipt]:
        self.disk_space.assert_not_full()
        operation = self._operations.record(submissions, self._clock)
        try:
            receipts = await self._writer.submit(operation)
        except StorageFull:
            self.disk_space.note_full()
            raise
        self.disk_space.note_recorded()
        self._reclaimer.is_busy = True
        self.queue.wake()
        return receipts

    async def cursor(self, source: str) -> str | None:
        rows = await self._writer.run(Statements.rows, "cursor", source=source)
        return str(rows[0]["cursor"]) if rows else None

    async def prove_writable(self) -> None:
        """Commit and sync a tiny write. Raise the errors that `record` would."""
        await self._writer.run(Statements.fetch, "write_probe", now=to_text(self._clock()))

    async def apply_tables(
        self, schemas: Sequence[str], migrations: Sequence[InboxMigration] = ()
    ) -> list[str]:
        await self._writer.run(schema.apply_schema, schemas)
        applied: list[str] = []
        apply_next, now = schema.apply_next_migration, self._clock()
        while (name := await self._writer.run(apply_next, migrations, now)) is not None:
            applied.append(name)
        return applied

    async def replay(
        self,
        ids: Sequence[EventId],
        *,
        actor: str,
        peer: str | None = None,
        completed: bool = False,
    ) -> Mapping[EventId, ReplayKind]:
        caller, now = Caller(actor, peer), self._clock()
        done = await self._writer.run(replay.replay, ids, caller, now, completed=completed)
        self.queue.wake()
        return done

    async def discard(
        self, ids: Sequence[EventId], *, actor: str, peer: str | None = None
    ) -> Mapping[EventId, DiscardKind]:
        done = await self._writer.run(replay.discard, ids, Caller(actor, peer), self._clock())
        self.queue.wake()  # the next event of a lane may be claimable
        return done

    async def unpark(self, source: str, event_type: str) -> int:
        rows = await self._writer.run(replay.unpark, source, event_type, self._clock())
        self.queue.wake()
        return rows

    async def add_tombstones(
        self, policy: RetentionPolicy, status: Status, *, after: int
    ) -> TombstonePass:
        return await self._writer.run(
            retention.add_tombstones, policy, status, after, self._clock()
        )

    async def prune(self, policy: RetentionPolicy) -> PruneResult:
        pruned = await self._writer.run(retention.prune, policy, self._clock())
        self._reclaimer.note_deleted(pruned.rows)
        return pruned

    async def purge(self, policy: RetentionPolicy) -> PurgeResult:
        purged = await self._writer.run(retention.purge, policy, self._clock())
        self._reclaimer.note_deleted(purged.tombstones + purged.audit)
        return purged

    async def prune_quarantine(self, policy: RetentionPolicy) -> int:
        rows = await self._writer.run(prune_quarantine, policy, self._clock())
        self._reclaimer.note_deleted(rows)
        return rows

    async def prune_fingerprints(self) -> int:
        rows = await self._writer.run(retention.prune_fingerprints, self._clock())
        self._reclaimer.note_deleted(rows)
        return rows

    def backup(self, target: Path) -> Backup:
        return Backup(self._writer, self._lock.ledger, target, pages=self._limits.backup_pages)

    async def close(self) -> None:
        """Close the reader before the writer: the last connection to be closed deletes the log."""
        self._writer.refuse_new()
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        await self.reader.close()
        await self._writer.stop()
        self._allow_foreign()
        self._lock.release()
