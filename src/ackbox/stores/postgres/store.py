"""The ledger in a PostgreSQL database, which many instances share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from msgspec import Struct

from ackbox.errors import OUTAGES, Stopped
from ackbox.model import (
    Caller,
    Clock,
    DiscardKind,
    Envelope,
    EventId,
    InboxMigration,
    PruneResult,
    PurgeResult,
    Receipt,
    ReceiptKind,
    ReplayKind,
    RetentionPolicy,
    Status,
    Submission,
    TombstonePass,
)
from ackbox.ports import Relay
from ackbox.services import Services
from ackbox.stores.postgres.admin.migrator import assert_durable, migrate
from ackbox.stores.postgres.admin.rights import assert_writable
from ackbox.stores.postgres.admin.transfer_in import assert_no_unfinished_promotion
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.read.reader import WAITING_LIMIT, PostgresReader
from ackbox.stores.postgres.statements import lock_key
from ackbox.stores.postgres.write import replay, retention, schema
from ackbox.stores.postgres.write.claim_scans import SCAN_SECONDS
from ackbox.stores.postgres.write.notifications import Notifications
from ackbox.stores.postgres.write.queue import PostgresQueue
from ackbox.stores.postgres.write.record import record
from ackbox.stores.postgres.write.relayed_queue import RelayedQueue
from ackbox.telemetry import ClockSkewed, Observer

_SKEW = timedelta(seconds=30)
_SHOWN = 60
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_CLOSE_SECONDS = 5.0


class StoreOptions(Struct, frozen=True):
    """How a store wakes workers and claims events. With a relay, new events go to the workers
    through it, not by NOTIFY. `waiting_limit` is the highest count of waiting events that a caller
    needs; `scan_seconds` is the time between two full scans of a busy queue, and
    `check_seconds` the time between two checks of the database."""

    notify: bool = True
    relay: Relay | None = None
    waiting_limit: int = WAITING_LIMIT
    scan_seconds: float = SCAN_SECONDS
    check_seconds: float = 1.0
    monotonic: Callable[[], float] = monotonic


_DEFAULTS = StoreOptions()


async def open_store(
    address: Address,
    *,
    clock: Clock,
    observe: Observer,
    options: StoreOptions = _DEFAULTS,
    services: Services | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> "PostgresStore":
    """Open the ledger. Wait for a server that cannot be reached; raise `SettingError` or
    `StoreError` if waiting does not help."""
    database = Database(address, observe)
    delay = _FIRST_DELAY
    try:
        while True:
            try:
                await assert_durable(database)
                await migrate(database)
                await assert_no_unfinished_promotion(database)
                await assert_writable(database)
                break
            except OUTAGES as error:
                database.note_unavailable(error, must_write=True)
                await sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)
    except BaseException:
        await database.close()
        raise
    return PostgresStore(
        database,
        clock=clock,
        observe=observe,
        options=options,
        services=services or Services(observe, clock=clock),
    )


class PostgresStore:
    """Implements `Store`."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        observe: Observer,
        options: StoreOptions,
        services: Services,
    ) -> None:
        self._relayed = self._make_relayed_queue(database, options)
        self.queue = self._relayed or PostgresQueue(database, scan_seconds=options.scan_seconds)
        self.reader = PostgresReader(database.address, waiting_limit=options.waiting_limit)
        self.database = database
        self._counts_lock = lock_key(database.address.schema, "compact counts")
        self._clock = clock
        self._observe = observe
        self._check_seconds = options.check_seconds
        self._skewed = False
        self._closed = False
        self._recording: set[asyncio.Task[list[Receipt]]] = set()
        listening = options.notify and not database.address.pooled
        wake = self.queue.wake
        self._notifications = Notifications(database, wake, services) if listening else None
        self._loops = [services.run("database-checks", self._check)]
        if self._relayed is not None:
            self._loops.append(services.run("redis-publisher", self._relayed.send_next))

    @property
    def unavailable_reason(self) -> str | None:
        return self.database.unavailable_reason

    async def record(self, submissions: Sequence[Submission]) -> list[Receipt]:
        """Record the events. If the caller is cancelled, the transaction continues."""
        if self._closed:
            raise Stopped("The ledger is closed.")
        envelopes = [envelope for s in submissions for envelope in s.envelopes]
        cursors = [s.cursor for s in submissions if s.cursor is not None]
        recording = asyncio.ensure_future(record(self.database, envelopes, cursors))
        self._recording.add(recording)
        recording.add_done_callback(self._recorded)
        receipts = await asyncio.shield(recording)
        self.queue.scans.note_sources({envelope.source for envelope in envelopes})
        if self._relayed is None:
            self.notify()
        else:
            self._relayed.publish(_new_events(envelopes, receipts))
        return receipts

    async def cursor(self, source: str) -> str | None:
        rows = await self.database.fetch("cursor", source=source)
        return rows[0][0] if rows else None

    async def prove_writable(self) -> None:
        await self.database.prove_writable()

    async def apply_tables(
        self, schemas: Sequence[str], migrations: Sequence[InboxMigration] = ()
    ) -> list[str]:
        """Change the users' tables, one instance at a time."""
        if schemas:
            await schema.apply_schema(self.database.address, schemas)
        if not migrations:
            return []
        return await schema.apply_migrations(self.database.address, migrations)

    async def replay(
        self,
        ids: Sequence[EventId],
        *,
        actor: str,
        peer: str | None = None,
        completed: bool = False,
    ) -> Mapping[EventId, ReplayKind]:
        done = await replay.replay(self.database, ids, Caller(actor, peer), completed=completed)
        self.queue.scans.request_full_scan()
        self.notify()
        return done

    async def discard(
        self, ids: Sequence[EventId], *, actor: str, peer: str | None = None
    ) -> Mapping[EventId, DiscardKind]:
        done = await replay.discard(self.database, ids, Caller(actor, peer))
        self.queue.scans.request_full_scan()  # a lane may go on
        self.notify()
        return done

    async def unpark(self, source: str, event_type: str) -> int:
        rows = await replay.unpark(self.database, source, event_type)
        self.queue.scans.request_full_scan()
        self.notify()
        return rows

    async def add_tombstones(
        self, policy: RetentionPolicy, status: Status, *, after: int
    ) -> TombstonePass:
        return await retention.add_tombstones(self.database, policy, status, after)

    async def prune(self, policy: RetentionPolicy) -> PruneResult:
        return await retention.prune(self.database, policy)

    async def purge(self, policy: RetentionPolicy) -> PurgeResult:
        return await retention.purge(self.database, policy)

    async def close(self) -> None:
        """Close the ledger, after the events that were handed over are durable."""
        self._closed = True
        if self._recording:
            await asyncio.wait(self._recording, timeout=_CLOSE_SECONDS)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._relayed is not None:
            await self._relayed.close()
        await self.reader.close()
        if self._notifications is not None:
            await self._notifications.close()
        await self.database.close()

    def _make_relayed_queue(self, database: Database, options: StoreOptions) -> RelayedQueue | None:
        if options.relay is None:
            return None
        return RelayedQueue(
            database,
            options.relay,
            fallback=self.notify,
            scan_seconds=options.scan_seconds,
            monotonic=options.monotonic,
        )

    def _recorded(self, recording: "asyncio.Task[list[Receipt]]") -> None:
        self._recording.discard(recording)
        if not recording.cancelled():
            recording.exception()  # the caller may be gone

    def notify(self) -> None:
        """Wake our own workers and other instances: an event may be claimable."""
        self.queue.wake()
        if self._notifications is not None:
            self._notifications.notify()

    async def _check(self) -> None:
        """Compact the counts by status, notice that a lost server is back, and compare clocks."""
        await asyncio.sleep(self._check_seconds)
        with suppress(*OUTAGES):  # the database reports its own outages
            if self.unavailable_reason is not None:
                await self.prove_writable()
            await self.database.fetch("compact_counts", lock=self._counts_lock)
            await self._compare_clocks()

    async def _compare_clocks(self) -> None:
        before = self._clock()
        (row,) = await self.database.fetch("server_time")
        skew = row[0] - before
        skewed = abs(skew) > _SKEW
        if skewed != self._skewed:
            self._observe(ClockSkewed(skew.total_seconds() if skewed else 0.0))
        self._skewed = skewed


def _new_events(envelopes: Sequence[Envelope], receipts: Sequence[Receipt]) -> dict[EventId, str]:
    pairs = zip(envelopes, receipts, strict=True)
    return {
        receipt.id: envelope.source
        for envelope, receipt in pairs
        if receipt.kind is ReceiptKind.NEW
    }
