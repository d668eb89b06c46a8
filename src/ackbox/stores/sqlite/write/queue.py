"""`EventQueue` on SQLite: claim, renew and settle on the writer thread.

A row can be claimed when its `claimable_at` has come. For a pending row this is the time when it is
due, for a processing row the end of its lease. A row that is finished, parked, or behind another
event of its lane has no `claimable_at`, and costs a claim nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime, timedelta

from ackbox.errors import OUTAGES, AckboxError
from ackbox.model import (
    Caps,
    Claim,
    Clock,
    EventId,
    Outcome,
    Settlement,
    Suspect,
    WorkerId,
    to_text,
)
from ackbox.stores.outcomes import fallback_of, follow_ups_of, has_effects
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.claim_selection import ClaimSelection, read_claims
from ackbox.stores.sqlite.write.effects import Effects
from ackbox.stores.sqlite.write.settlement import run_of, settle
from ackbox.stores.sqlite.write.writer import Writer

Written = dict[EventId, Outcome]


class SqliteQueue:
    """The queue of the writer. Each operation that makes a row claimable wakes the waiting worker;
    a wake-up is only a hint."""

    def __init__(self, writer: Writer, effects: Effects, clock: Clock) -> None:
        self._writer = writer
        self._effects = effects
        self._clock = clock
        self._wake_event = asyncio.Event()
        self.has_submissions = asyncio.Event()
        """Set when events that handlers sent wait in `submissions`."""
        self._next_due: datetime | None = None

    async def claim(
        self, worker: WorkerId, *, limit: int, lease: timedelta, caps: Caps
    ) -> list[Claim]:
        self._wake_event.clear()

        def select(rows: ClaimSelection) -> list[int]:
            return rows.select(limit, caps)

        claims, self._next_due = await self._writer.run(
            _claim, worker, self._clock(), lease, select
        )
        return claims

    async def claim_these(
        self, worker: WorkerId, ids: Sequence[EventId], *, limit: int, lease: timedelta
    ) -> list[Claim]:
        self._wake_event.clear()

        def select(rows: ClaimSelection) -> list[int]:
            return rows.select_among(ids, limit)

        claims, _ = await self._writer.run(_claim, worker, self._clock(), lease, select)
        return claims

    async def suspect(self) -> Suspect | None:
        now = to_text(self._clock())
        rows = await self._writer.run(Statements.rows, "suspect", now=now)
        return Suspect(**rows[0]) if rows else None

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        def select(rows: ClaimSelection) -> list[int]:
            return rows.select_suspect(event_id)

        claims, _ = await self._writer.run(_claim, worker, self._clock(), lease, select)
        return claims[0] if claims else None

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        until = to_text(self._clock() + lease)
        pairs = [(claim.ledger_id, claim.run) for claim in claims]

        held = await self._writer.run(_renew, pairs, until)
        return {claim.id for claim in claims if claim.ledger_id in held}

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        """Settle in one operation all outcomes without effects. An outcome with effects is an
        operation of its own, so that a failing statement affects no other settlement."""
        now = self._clock()
        plain = [s for s in settlements if not has_effects(s)]
        try:
            if len(plain) == len(settlements):  # submit now: a claim may share the commit
                return await self._settle_plain(plain, now)
            return await self._settle_each(settlements, plain, now)
        finally:
            self.wake()  # the next event of a lane, or a retry, may be due

    async def _settle_each(
        self, settlements: Sequence[Settlement], plain: Sequence[Settlement], now: datetime
    ) -> Written:
        jobs = [self._settle_with_effects(s, now) for s in settlements if has_effects(s)]
        if plain:
            jobs.append(self._settle_plain(plain, now))
        results = await asyncio.gather(*jobs, return_exceptions=True)
        written: Written = {}
        for result in results:
            if isinstance(result, BaseException):
                raise result  # the caller settles all again; settlements already written stay
            written |= result
        return written

    async def _settle_plain(self, settlements: Sequence[Settlement], now: datetime) -> Written:
        held = await self._writer.run(settle, settlements, now)
        return {s.claim.id: s.outcome for s in settlements if run_of(s) in held}

    async def _settle_with_effects(self, settlement: Settlement, now: datetime) -> Written:
        try:
            held = await self._writer.submit(
                lambda connection: self._effects.settle(Statements(connection), settlement, now),
                in_savepoint=True,
            )
        except OUTAGES:
            raise
        except AckboxError as error:
            failed = Settlement(settlement.claim, fallback_of(settlement.outcome, str(error)))
            return await self._settle_plain([failed], now)
        if follow_ups_of([settlement]):
            self.has_submissions.set()
        return {settlement.claim.id: settlement.outcome} if held else {}

    async def wait(self, timeout: timedelta) -> None:
        seconds = timeout.total_seconds()
        if self._next_due is not None:
            until_due = (self._next_due - self._clock()).total_seconds()
            seconds = min(seconds, max(until_due, 0.0))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake_event.wait(), seconds)

    def wake(self) -> None:
        self._wake_event.set()


def _claim(
    sql: Statements,
    worker: WorkerId,
    now: datetime,
    lease: timedelta,
    select: Callable[[ClaimSelection], list[int]],
) -> tuple[list[Claim], datetime | None]:
    grant = {"worker": worker, "now": to_text(now), "lease_until": to_text(now + lease)}
    selection = ClaimSelection(sql, grant["now"])
    selected = select(selection)
    if not selected:
        return [], selection.next_due
    sql.run("claim", selected=selected, **grant)
    return read_claims(sql, selected), selection.next_due


def _renew(sql: Statements, claims: Sequence[tuple[int, int]], until: str) -> set[int]:
    held = set(sql.fetch("held", claims=claims))
    sql.run("renew", claims=claims, lease_until=until)
    return held
