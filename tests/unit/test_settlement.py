"""When outcomes go to the store, and which of them share a commit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from ackbox.errors import Unavailable
from ackbox.model import Done
from ackbox.worker.admission import Admission
from ackbox.worker.settlement import Settler
from support.ledgers.facts import Facts
from support.time.supervisor import supervisor
from support.workers.runs import CountedBacklog, ScriptedQueue, claim

LOOP_ITERATIONS = 20


class Stage:
    def __init__(self, **more: Any) -> None:
        self.queue = ScriptedQueue()
        self.admission: Admission[str] = Admission(10, 100, frozenset())
        self.settler = Settler(
            self.queue, self.admission, CountedBacklog(), observe=Facts(), **more
        )

    def end(self, *keys: str) -> None:
        for key in keys:
            self.admission.hold([ended := claim(key)])
            self.settler.add(ended, Done())

    async def yield_to_loop(self) -> None:
        for _ in range(LOOP_ITERATIONS):
            await asyncio.sleep(0)


@asynccontextmanager
async def settling(**more: Any) -> AsyncIterator[Stage]:
    made = Stage(**more)
    running = supervisor().run("settlements", made.settler.settle_next)
    await asyncio.sleep(0)
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with settling() as made:
        yield made


async def test_outcomes_are_settled_as_soon_as_they_are_added(stage: Stage) -> None:
    stage.end("a", "b")
    await stage.yield_to_loop()
    assert stage.queue.batches == [2]
    assert [settled.claim.id for settled in stage.queue.settled] == ["a", "b"]
    assert stage.admission.held == {}


async def test_outcomes_before_a_claim_share_its_commit(stage: Stage) -> None:
    stage.end("a", "b")
    async with stage.settler.share_commit_with_claim():
        assert stage.queue.batches == [2]


async def test_outcomes_during_a_claim_are_settled_after_it(stage: Stage) -> None:
    async with stage.settler.share_commit_with_claim():
        stage.end("a")
        await stage.yield_to_loop()
        stage.end("b")
        await stage.yield_to_loop()
        assert stage.queue.batches == []
    await stage.yield_to_loop()
    assert stage.queue.batches == [2]


async def test_a_claim_that_fails_delays_no_outcome(stage: Stage) -> None:
    with suppress(ValueError):
        async with stage.settler.share_commit_with_claim():
            stage.end("a")
            raise ValueError("no claim")
    await stage.yield_to_loop()
    assert stage.queue.batches == [1]
    stage.end("b")
    await stage.yield_to_loop()
    assert stage.queue.batches == [1, 1]


async def test_a_full_batch_of_outcomes_does_not_wait_for_a_claim(stage: Stage) -> None:
    async with stage.settler.share_commit_with_claim():
        stage.end(*(f"e{n}" for n in range(500)))
        await stage.yield_to_loop()
        assert stage.queue.batches == [500]


async def test_outcomes_do_not_wait_for_a_claim_that_hangs() -> None:
    async with settling(defer_seconds=0.0) as stage, stage.settler.share_commit_with_claim():
        stage.end("a")
        async with asyncio.timeout(5):
            await stage.queue.changed.wait()
        assert stage.queue.batches == [1]


async def test_many_outcomes_are_settled_in_batches(stage: Stage) -> None:
    stage.end(*(f"e{n}" for n in range(1100)))
    await stage.yield_to_loop()
    assert stage.queue.batches == [500, 500, 100]


async def test_outcomes_that_are_added_during_an_outage_are_settled_after_it() -> None:
    async with settling(retry_seconds=0.0) as stage:
        stage.queue.open.clear()
        stage.queue.failures.append(Unavailable("away"))
        stage.end("a")
        await stage.yield_to_loop()
        stage.end("b")
        stage.queue.open.set()
        await stage.yield_to_loop()
        assert [settled.claim.id for settled in stage.queue.settled] == ["a", "b"]


async def test_a_flush_settles_all_even_during_a_claim(stage: Stage) -> None:
    async with stage.settler.share_commit_with_claim():
        stage.end("a")
        await stage.settler.flush(5)
        assert stage.queue.batches == [1]
