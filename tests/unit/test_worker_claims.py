"""The worker: claims beside runs, claims that are lost, back-pressure."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from ackbox.handlers import Event
from ackbox.model import Done, RetryLater
from ackbox.telemetry import Claimed, LeaseLost
from support.ledgers.events import NOON
from support.time.supervisor import supervisor
from support.workers.runs import ScriptedQueue, claim, registration
from support.workers.worker_stage import Stage, claims, working


class ObservedQueue(ScriptedQueue):
    """A queue that notes when a claim is sent and when it returns."""

    def __init__(self, busy: "Busy") -> None:
        super().__init__()
        self._busy = busy

    async def claim(self, *args: Any, limit: int, **more: Any) -> list[Any]:
        await self._busy.before_claim()
        claimed = await super().claim(*args, limit=limit, **more)
        self._busy.after_claim(len(claimed))
        return claimed


class Busy:
    """A worker with quick handlers and a backlog; `calls` has the order of claims and runs."""

    def __init__(self, *, backlog: int, slow_store: bool = False) -> None:
        self._slow_store = slow_store
        queue = ObservedQueue(self)
        self.stage = Stage(registration(self.handle), count=2, batch=10, queue=queue)
        self.calls: list[str] = []
        self.unstarted: list[int] = []
        self._claimed = self._ran = 0
        queue.put(*claims("e", backlog))

    async def before_claim(self) -> None:
        self.calls.append("claiming")
        await asyncio.sleep(0)
        while self._slow_store and (  # noqa: ASYNC110 - the end of a run has no event
            self._ran < self._claimed or self.stage.worker._admission.runs
        ):
            await asyncio.sleep(0)

    def after_claim(self, claimed: int) -> None:
        self._claimed += claimed
        self.unstarted.append(self._claimed - self._ran)
        self.calls.append("claimed")

    async def handle(self, event: Event) -> None:
        self._ran += 1
        self.calls.append("ran")

    async def work(self, count: int) -> None:
        self.stage.worker.start(supervisor(self.stage.facts))
        await self.stage.settled(count)
        await self.stage.worker.stop(0)


async def test_the_next_claim_is_sent_before_the_runs_of_a_full_one() -> None:
    busy = Busy(backlog=200, slow_store=True)
    await busy.work(200)
    after_claims = [after for now, after in pairwise(busy.calls) if now == "claimed"]
    assert after_claims[-8:-4] == ["claiming"] * 4  # the last claims find less than their limit
    assert sorted(busy.stage.queue.outcomes()) == sorted(f"e{n}" for n in range(200))


async def test_the_number_of_claims_sent_ahead_is_bounded() -> None:
    busy = Busy(backlog=300)
    await busy.work(300)
    assert 10 < max(busy.unstarted) <= 20 + 2  # two runs have a slot and have not started


async def test_a_lost_claim_stops_its_run_and_settles_nothing() -> None:  # F17
    async with working() as stage:
        lost = claim("a")
        stage.queue.put(lost)
        await stage.until(lambda: stage.running)
        stage.worker.lose([lost], "gone")
        await stage.until(lambda: not stage.running)
        stage.queue.put(claim("b"))
        await stage.until(lambda: stage.running)
        stage.finish()
        assert await stage.settled(1) == {"b": Done("handled")}
        assert stage.facts.of(LeaseLost) == [LeaseLost([lost], "gone")]  # S27


@pytest.mark.parametrize("by", ["itself", "another"])
async def test_a_run_that_user_code_cancels_has_failed(by: str) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def handler(event: Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        if by == "itself":
            task.cancel()
        await asyncio.Event().wait()

    async with working(registration(handler)) as stage:
        stage.queue.put(claim("a"))
        await stage.until(lambda: tasks)
        if by == "another":
            tasks[0].cancel()
        outcome = (await stage.settled(1))["a"]
        assert isinstance(outcome, RetryLater)
        assert outcome.failure.code == "CancelledError"


async def test_a_lost_claim_that_waits_for_a_slot_is_never_run() -> None:
    async with working(count=1) as stage:
        first, second = claim("a"), claim("b")
        stage.queue.put(first, second)
        await stage.until(lambda: len(stage.worker.held) == 2)
        stage.worker.lose([second], "gone")
        stage.finish()
        await stage.settled(1)
        assert stage.ran == ["a"]


async def test_losing_an_old_run_leaves_a_new_one_of_the_same_event_alone() -> None:
    async with working() as stage:
        old, new = claim("a", run=1), claim("a", run=2)
        stage.queue.put(old)
        await stage.until(lambda: stage.running)
        stage.finish()
        await stage.until(lambda: not stage.worker.held)
        stage.queue.put(new)
        await stage.until(lambda: stage.running)
        stage.worker.lose([old], "gone")  # the run was settled while the heartbeat renewed it
        for _ in range(5):
            await asyncio.sleep(0)
        assert stage.worker.held == {"a": new}
        assert stage.facts.of(LeaseLost) == []
        stage.finish()
        await stage.settled(2)
        assert [s.claim.run for s in stage.queue.settled] == [1, 2]


async def test_a_run_lost_before_its_first_step_frees_its_slot() -> None:
    async with working(count=1) as stage:
        doomed = claim("a")
        stage.worker._admit([doomed])
        stage.worker._run()
        stage.worker.lose([doomed], "gone")
        stage.queue.put(claim("b"))
        await stage.until(lambda: list(stage.running) == ["b"])


async def test_claimed_events_leave_the_backlog_and_released_ones_return() -> None:  # W7
    async with working(count=2) as stage:
        stage.queue.put(*claims("e", 2), claim("again", attempts=2), claim("lost", unsettled=1))
        await stage.until(lambda: len(stage.worker.held) == 4)
        assert stage.backlog.claimed == [2]  # the other two were off the backlog already
        assert await stage.worker.stop(0) == 4
        assert sum(stage.backlog.claimed) == 2 - 4


async def test_a_parked_event_does_not_return_to_the_backlog() -> None:  # W7
    async with working(registration(lambda event: None, "invoice.*"), park_unhandled=True) as stage:
        stage.queue.put(claim("a"))
        await stage.settled(1)
        assert sum(stage.backlog.claimed) == 1


async def test_an_event_from_the_future_has_waited_for_no_time() -> None:  # F25
    second = timedelta(seconds=1)
    async with working() as stage:
        past, future = claim("a", created_at=NOON - second), claim("b", created_at=NOON + second)
        stage.queue.put(past, future)
        await stage.until(lambda: len(stage.worker.held) == 2)
        assert stage.facts.of(Claimed) == [Claimed([past, future], [1.0, 0.0])]
