"""The table `submissions` on PostgreSQL, which handlers, applications and all instances share.

A transaction that writes to the table locks nothing that another transaction wants. To move rows,
an instance deletes and records them in one transaction. It skips the rows that another instance is
moving, so no instance waits for another.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from ackbox.model import Clock, Envelope, Moved, Receipt, Settlement
from ackbox.stores.outcomes import follow_ups_of
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.postgres.statements import lock_key
from ackbox.stores.postgres.write.record import insert, receipts_of
from ackbox.stores.submissions import MOVE_BYTES, MOVE_ROWS, to_envelopes

Publish = Callable[[Sequence[Envelope], Sequence[Receipt]], None]
"""Wakes the workers for recorded events."""


class PostgresSubmissions:
    """Implements `Submissions`. `sent` is set when a handler of this instance has sent an event."""

    def __init__(
        self, database: Database, sent: asyncio.Event, publish: Publish, clock: Clock
    ) -> None:
        self._database = database
        self._sent = sent
        self._publish = publish
        self._clock = clock
        self.lanes_lock = lock_key(database.address.schema, "submissions with lanes")

    async def move(self) -> Moved:
        self._sent.clear()
        async with self._database.transaction() as session:
            rows = await session.fetch(
                "take_submissions", limit=MOVE_ROWS, bytes=MOVE_BYTES, lanes_lock=self.lanes_lock
            )
            if not rows:
                return Moved()
            envelopes = to_envelopes(map(tuple, rows), self._clock(), random.getrandbits)
            inserted = await insert(session, envelopes, ())
        receipts = await receipts_of(self._database, envelopes, inserted)
        self._publish(envelopes, receipts)
        return Moved(envelopes, receipts)

    async def wait(self, timeout: timedelta) -> None:
        with suppress(TimeoutError):  # `wait_for` of Python 3.11 may lose a cancellation
            async with asyncio.timeout(timeout.total_seconds()):
                await self._sent.wait()


async def submit(session: Session, settlements: Sequence[Settlement]) -> None:
    """Write the events that the handlers sent."""
    if not (follow_ups := follow_ups_of(settlements)):
        return
    sent = [follow_up for _, follow_up in follow_ups]
    await session.fetch(
        "submit",
        parents=[parent for parent, _ in follow_ups],
        sources=[event.source for event in sent],
        keys=[event.idempotency_key for event in sent],
        types=[event.event_type for event in sent],
        lanes=[event.lane for event in sent],
        content_types=[event.content_type for event in sent],
        payloads=[event.payload for event in sent],
    )
