"""A start on a ledger whose last process had a clock that was ahead (F25)."""

from datetime import timedelta

import pytest

from ackbox.model import Release
from ackbox.stores.sqlite.limits import LIMITS, Limits
from ackbox.stores.sqlite.store import SqliteStore
from support.ledgers.backends import OpenStore, Row, all_rows
from support.ledgers.events import NOON, envelope, record_in
from support.time.clocks import ManualClock
from support.workers.queue_worker import QueueWorker, done, retry_later


class Ledger:
    """A ledger that one process after the other opens."""

    def __init__(self, open_it: OpenStore, limits: Limits = LIMITS) -> None:
        self.clock = ManualClock()
        self._open_it = open_it
        self._limits = limits

    async def start(self) -> QueueWorker:
        self.store: SqliteStore = await self._open_it(clock=self.clock, limits=self._limits)
        return QueueWorker(self.store.queue)

    async def restart(self, **clock_set_by: float) -> QueueWorker:
        await self.store.close()
        self.clock.advance(**clock_set_by)
        return await self.start()

    async def record(self, *keys: str, lane: str | None = None) -> None:
        await record_in(self.store, [envelope(key, at=self.clock(), lane=lane) for key in keys])

    async def rows(self) -> list[Row]:
        return await self.store._writer.submit(all_rows)


@pytest.fixture
def ledger(open_it: OpenStore) -> Ledger:
    return Ledger(open_it)


async def test_a_pending_event_does_not_wait_for_its_future_arrival_time(
    ledger: Ledger,
) -> None:  # F25
    await ledger.start()
    await ledger.record("a", "b")
    me = await ledger.restart(hours=-1)
    assert await me.keys() == ["a", "b"]


async def test_a_running_event_is_taken_over_at_once(ledger: Ledger) -> None:  # F25
    me = await ledger.start()
    await ledger.record("a")
    await me.claim_one()
    me = await ledger.restart(hours=-1)
    claim = await me.claim_one()
    assert (claim.idempotency_key, claim.run) == ("a", 2)
    await me.settle(claim, Release())
    assert await me.keys() == ["a"]


async def test_a_retry_waits_no_longer_than_its_delay(ledger: Ledger) -> None:  # F25
    me = await ledger.start()
    await ledger.record("a")
    await me.settle(await me.claim_one(), retry_later(after=timedelta(seconds=10.5)))
    me = await ledger.restart(hours=-1)
    ledger.clock.advance(seconds=10)
    assert await me.keys() == []
    ledger.clock.advance(seconds=0.5)
    assert await me.keys() == ["a"]


async def test_a_restart_soon_after_does_not_start_the_delay_again(ledger: Ledger) -> None:  # F25
    me = await ledger.start()
    await ledger.record("a")
    await me.settle(await me.claim_one(), retry_later(after=timedelta(seconds=10)))
    await ledger.restart(hours=-1)
    me = await ledger.restart(seconds=9)
    assert await me.keys() == []
    ledger.clock.advance(seconds=1)
    assert await me.keys() == ["a"]


async def test_a_lane_continues_in_its_order(ledger: Ledger) -> None:  # F25
    me = await ledger.start()
    await ledger.record("a", "b", "c", lane="x")
    me = await ledger.restart(hours=-1)
    for key in ("a", "b", "c"):
        claim = await me.claim_one()
        assert claim.idempotency_key == key
        await me.settle(claim, done())


async def test_a_parked_event_is_due_when_it_is_unparked(ledger: Ledger) -> None:  # F25
    me = await ledger.start()
    await ledger.record("a")
    await me.settle(await me.claim_one(), Release(parked=True))
    me = await ledger.restart(hours=-1)
    assert await ledger.store.unpark("webhooks", "webhook") == 1
    assert await me.keys() == ["a"]


async def test_all_of_a_backlog_is_checked(open_it: OpenStore) -> None:  # F25
    ledger = Ledger(open_it, Limits(recovery_rows=3))
    await ledger.start()
    await ledger.record(*(f"k-{n}" for n in range(10)))
    me = await ledger.restart(hours=-1)
    assert len(await me.keys()) == 10


async def add_old_backlog(ledger: Ledger) -> None:
    """Record as many events as are checked to see whether the clock was set back."""
    await record_in(ledger.store, [envelope(f"old-{n}", at=NOON) for n in range(1000)])


async def test_a_retry_behind_a_backlog_reveals_the_clock(ledger: Ledger) -> None:  # F25
    me = await ledger.start()
    await ledger.record("a")
    ledger.clock.advance(hours=2)
    await me.settle(await me.claim_one(), retry_later(after=timedelta(seconds=10)))
    await add_old_backlog(ledger)
    me = await ledger.restart(hours=-1)
    ledger.clock.advance(seconds=10)
    assert "a" in await me.keys(2000)


async def test_a_run_behind_a_backlog_reveals_the_clock(ledger: Ledger) -> None:  # F25
    me = await ledger.start()
    ledger.clock.advance(hours=2)
    await ledger.record("a", "b", lane="x")
    running = await me.claim_one()
    await add_old_backlog(ledger)
    me = await ledger.restart(hours=-1)
    (running,) = await me.claim(ids=[running.id])
    await me.settle(running, done())
    assert "b" in await me.keys(2000)


@pytest.mark.parametrize("hours", [0, 1])
async def test_a_clock_that_was_not_set_back_changes_no_row(
    ledger: Ledger, hours: float
) -> None:  # F25
    me = await ledger.start()
    await ledger.record("a", "b", "c", lane="x")
    await ledger.record("d")
    await me.settle_all(await me.claim(), retry_later(after=timedelta(hours=2)))
    before = await ledger.rows()
    await ledger.restart(hours=hours)
    assert await ledger.rows() == before
