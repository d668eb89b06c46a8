"""Lanes: events that run in order, one at a time."""

import asyncio
from datetime import timedelta

from ackbox.model import (
    Claim,
    Release,
)
from support.ledgers.backends import Backend, record, restart
from support.time.clocks import ManualClock
from support.workers.queue_worker import QueueWorker, dead, done, retry_later

SECOND = timedelta(seconds=1)


async def test_in_a_lane_only_the_oldest_can_be_claimed(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "a1", "a2", "a3", lane="a")
    await record(backend, "b1", "b2", lane="b")
    await record(backend, "free")
    assert await me.keys() == ["a1", "b1", "free"]
    assert await me.keys() == []


async def test_a_lane_continues_when_its_head_is_done(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a1", "a2", "a3", lane="a")
    for expected in ("a1", "a2", "a3"):
        claim = await me.claim_one()
        assert claim.idempotency_key == expected
        await me.settle(claim, done())
    await record(backend, "a4", lane="a")  # into a lane whose head is finished
    assert await me.keys() == ["a4"]


async def test_a_retrying_head_blocks_only_its_lane(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), retry_later(after=10 * SECOND))
    await record(backend, "a3", lane="a")
    await record(backend, "b1", lane="b")
    assert await me.keys() == ["b1"]
    clock.advance(seconds=10)
    assert await me.keys() == ["a1"]


async def test_a_lane_continues_after_a_dead_head(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), dead())
    assert await me.keys() == ["a2"]


async def test_a_parked_head_blocks_its_lane_until_it_is_unparked(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S10
    await record(backend, "a1", lane="a", event_type="unknown")
    await record(backend, "a2", lane="a")
    await me.settle(await me.claim_one(), Release(parked=True))
    await record(backend, "a3", lane="a")
    await record(backend, "b1", lane="b")
    await me.settle(await me.claim_one(), done())  # b1
    clock.advance(days=1)
    me = await restart(backend)
    assert await backend.store.unpark("webhooks", "webhook") == 0
    assert await me.keys() == []
    assert await backend.store.unpark("webhooks", "unknown") == 1
    for expected in ("a1", "a2", "a3"):
        claim = await me.claim_one()
        assert claim.idempotency_key == expected
        await me.settle(claim, done())


async def test_an_older_event_that_is_replayed_runs_before_a_parked_head(
    backend: Backend, me: QueueWorker
) -> None:  # S10, F31
    first, _ = await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), dead())
    await me.settle(await me.claim_one(), Release(parked=True))
    await backend.store.replay([first.id], actor="tester")
    await me.settle(await me.claim_one(), done())
    assert await me.keys() == []
    assert await backend.store.unpark("webhooks", "webhook") == 1
    assert await me.keys() == ["a2"]


async def test_a_released_head_comes_first_again(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), Release())
    assert await me.keys() == ["a1"]


async def test_a_taken_over_head_still_blocks_its_lane(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.claim_one()
    clock.advance(seconds=30)
    assert await me.keys() == ["a1"]
    assert await me.keys() == []


async def test_a_stale_settle_frees_no_lane(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # F17
    await record(backend, "a1", "a2", lane="a")
    stale = await me.claim_one()
    clock.advance(seconds=30)
    await other.claim_one()
    await me.settle(stale, done())
    assert await me.claim() == []


async def test_equal_lane_names_of_two_sources_are_two_lanes(
    backend: Backend, me: QueueWorker
) -> None:
    await record(backend, "1", lane="a", source="x")
    await record(backend, "1", lane="a", source="y")
    assert len(await me.claim()) == 2


class LaneWorker:
    """Notes the order in which the events of a lane were done; no two may run at once."""

    def __init__(self, backend: Backend, me: QueueWorker) -> None:
        self.order: dict[str, list[str]] = {"a": [], "b": []}
        self._backend = backend
        self._me = me
        self._running: set[str] = set()

    async def work(self) -> None:
        while claims := await self._me.claim(2) or await self._claim_until_all_settled():
            for claim in claims:
                await self._run(claim)

    async def _claim_until_all_settled(self) -> list[Claim]:
        while any(r["status"] in ("pending", "processing") for r in await self._backend.rows()):
            if claims := await self._me.claim(2):
                return claims
        return []

    async def _run(self, claim: Claim) -> None:
        assert claim.lane is not None
        assert claim.lane not in self._running
        self._running.add(claim.lane)
        await asyncio.sleep(0)
        self._running.remove(claim.lane)
        if claim.run == 1 and claim.idempotency_key.endswith("5"):
            await self._me.settle(claim, retry_later(after=timedelta(0)))
        else:
            self.order[claim.lane].append(claim.idempotency_key)
            await self._me.settle(claim, done())


async def test_a_lane_keeps_its_order_under_concurrency(backend: Backend, me: QueueWorker) -> None:
    async def feed(lane: str) -> None:
        for n in range(20):
            await record(backend, f"{lane}{n:02}", lane=lane)

    lanes = LaneWorker(backend, me)
    await asyncio.gather(feed("a"), feed("b"))
    await asyncio.gather(*(lanes.work() for _ in range(4)))
    assert lanes.order == {lane: [f"{lane}{n:02}" for n in range(20)] for lane in "ab"}
