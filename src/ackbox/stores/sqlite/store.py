"""The writing side of the ledger in one SQLite file. Everything goes through the writer thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import apsw

from ackbox.errors import AckboxError, StorageFull
from ackbox.model import (
    Caller,
    Clock,
    DiscardKind,
    EventId,
    InboxMigration,
    PruneResult,
    Receipt,
    ReplayKind,
    RetentionPolicy,
    Status,
    Submission,
    TombstonePass,
    to_text,
)
from ackbox.stores.sqlite.admin.backup import Backup
from ackbox.stores.sqlite.connections import Connect, open_writer
from ackbox.stores.sqlite.files import lock_ledger, open_ledger
from ackbox.stores.sqlite.foreign_connections import refuse_in_process
from ackbox.stores.sqlite.ledger_files import LedgerFiles, open_files
from ackbox.stores.sqlite.lock import LedgerLock
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.statements import Statements, blocks
from ackbox.stores.sqlite.write import recovery, replay, retention, schema
from ackbox.stores.sqlite.write.effects import Effects
from ackbox.stores.sqlite.write.queue import SqliteQueue
from ackbox.stores.sqlite.write.record import RecordOperations
from ackbox.stores.sqlite.write.reserve import Reserve, free_bytes
from ackbox.stores.sqlite.write.writer import Writer
from ackbox.telemetry import Observer, StoreFailed, StoreRecovered


async def open_store(
    path: Path,
    *,
    durability: str,
    clock: Clock,
    observe: Observer,
    on_fatal: Callable[[AckboxError], None],
    free_bytes: Callable[[Path], int] = free_bytes,
    vfs: str | None = None,
) -> "SqliteStore":
    """Take the lock, check and migrate the file, and start the writer. Raise `StoreError` if that
    fails."""
    lock = lock_ledger(path)
    path = lock.ledger
    reserve = Reserve(path, free_bytes)
    files = LedgerFiles(lock)
    try:
        reserve.give_up_if_needed()  # opening may need the space
        connection = await _open_in_thread(
            partial(open_ledger, path, durability, vfs, observe=observe), files
        )
    except BaseException:
        lock.release()
        raise

    reconnect = partial(open_writer, path, durability=durability, vfs=vfs)
    writer = Writer(connection, reconnect, files, observe=observe, on_fatal=on_fatal)
    queue = SqliteQueue(writer, Effects(), clock)
    store = SqliteStore(lock, writer, reserve, queue, clock=clock, observe=observe)
    store.check_free_space()
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
    """Implements `Ledger` and `Operations`; holds the lock of the file until `close`."""

    def __init__(
        self,
        lock: LedgerLock,
        writer: Writer,
        reserve: Reserve,
        queue: SqliteQueue,
        *,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self.queue = queue
        self._lock = lock
        self._writer = writer
        self._reserve = reserve
        self._clock = clock
        self._observe = observe
        self._operations = RecordOperations(blocks())
        self._reported_full = False
        self._allow_foreign = refuse_in_process(lock.ledger)
        # SQLite reported a full disk although we measure free space (because of a quota, for
        # example). Only a successful `record` shows that this is over.
        self._is_unexplained = False

    @property
    def unavailable_reason(self) -> str | None:
        return self._writer.unavailable_reason or (
            self._reserve.reason if self._reserve.full else None
        )

    async def record(self, submissions: Sequence[Submission]) -> list[Receipt]:
        if self._reserve.full:
            raise StorageFull(self._reserve.reason, retry_after=5)
        operation = self._operations.record(submissions, self._clock)
        try:
            receipts = await self._writer.submit(operation)
        except StorageFull:
            self._refuse_new()
            raise
        if self._is_unexplained:
            self._is_unexplained = False
            self._report(full=False)
        self.queue.wake()
        return receipts

    async def cursor(self, source: str) -> str | None:
        rows = await self._writer.run(Statements.rows, "cursor", source=source)
        return str(rows[0]["cursor"]) if rows else None

    async def prove_writable(self) -> None:
        """Commit and sync a tiny write. Raise the errors that `record` would."""
        await self._writer.run(Statements.fetch, "write_probe", now=to_text(self._clock()))

    async def recover(self) -> None:
        """End all leases now: we hold the lock, so the process that held them is gone (W4)."""
        now = self._clock()
        after = 0 if await self._writer.run(recovery.end_leases, now) else None
        while after is not None:
            after = await self._writer.run(recovery.reschedule_future_rows, after, now)

    async def apply_schema(self, ddl: Sequence[str]) -> None:
        """Create the users' own tables."""
        await self._writer.run(schema.apply_schema, ddl)

    async def apply_migrations(self, declared: Sequence[InboxMigration]) -> list[str]:
        applied: list[str] = []
        apply_next, now = schema.apply_next_migration, self._clock()
        while (name := await self._writer.run(apply_next, declared, now)) is not None:
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

    async def add_tombstones(self, policy: RetentionPolicy, *, after: int) -> TombstonePass:
        return await self._writer.run(retention.add_tombstones, policy, after, self._clock())

    async def add_dead_letter_tombstones(
        self, policy: RetentionPolicy, *, after: int
    ) -> TombstonePass:
        return await self._writer.run(
            retention.add_tombstones, policy, after, self._clock(), status=Status.FAILED
        )

    async def prune(self, policy: RetentionPolicy) -> PruneResult:
        return await self._writer.run(retention.prune, policy, self._clock())

    async def purge_tombstones(self, policy: RetentionPolicy) -> int:
        return await self._writer.run(retention.purge_tombstones, policy, self._clock())

    async def prune_audit(self, policy: RetentionPolicy) -> int:
        return await self._writer.run(retention.prune_audit, policy, self._clock())

    async def reclaim_space(self) -> int:
        return await self._writer.run(retention.reclaim_space)

    def check_free_space(self) -> None:
        """Notice a full disk before SQLite does, and its end; and a ledger that was moved, even
        while no operation runs. Called about once a second."""
        self._writer.inspect()
        if self._reserve.check():
            self._is_unexplained = False
            self._report(full=True)
        elif not self._is_unexplained:
            self._report(full=False)

    def advertise(self, url: str, *, workers: int | None = None) -> None:
        """Publish the URL of this process and its number of workers to other processes."""
        self._lock.describe(url, workers)

    def open_reader(self) -> SqliteReader:
        """Return a reader. Before the writer reopens the ledger, it closes this reader's
        connections."""
        reader = SqliteReader(self._lock.ledger)
        self._writer.readers.append(reader.connections)
        return reader

    def backup(self, target: Path) -> Backup:
        return Backup(self._writer, self._lock.ledger, target)

    async def close(self) -> None:
        await self._writer.stop()
        self._allow_foreign()
        self._lock.release()

    def _refuse_new(self) -> None:
        if not self._reserve.full:
            self._reserve.give_up()
            self._is_unexplained = True
            self._report(full=True)

    def _report(self, *, full: bool) -> None:
        """Report that the disk became full, or has space again, once for each change (F9)."""
        if full != self._reported_full:
            self._reported_full = full
            self._observe(StoreFailed(self._reserve.reason) if full else StoreRecovered())
