"""The worker: which events it claims, runs and settles, and how it drains."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from ackbox.errors import StoreError, Unavailable
from ackbox.handlers import Event, Registration
from ackbox.model import DeadLetter, Done, Release, RetryLater, WorkerId
from ackbox.telemetry import Claimed, Fact, LeaseLost, ServiceFailed, Settled, WorkerCallFailed
from ackbox.worker import Pauses, Worker, WorkerConfig
from support.events import noon
from support.facts import Facts
from support.runs import CountedBacklog, ScriptedQueue, claim, executor, registration, registry
from support.supervisor import supervisor

PAUSES = Pauses(retry=0.001, suspects=0.0, cancel=0.05, flush=0.5)


class Stage:
    """A worker with a scripted queue, and handlers that end when the test says so."""

    def __init__(
        self,
        *registrations: Registration,
        count: int = 4,
        queue: ScriptedQueue | None = None,
        **config: Any,
    ) -> None:
        self.queue = queue or ScriptedQueue()
        self.backlog = CountedBacklog()
        self.facts = Facts()
        self.running: dict[str, asyncio.Event] = {}
        self.ran: list[str] = []
        given = registrations or (registration(self.handle),)
        settings = {"lease": timedelta(seconds=30), "batch": 100, "park_unhandled": False, **config}
        self.worker = Worker(
            self.queue,
            registry(*given),
            executor(),
            WorkerConfig(WorkerId("w"), count=count, pauses=PAUSES, **settings),
            backlog=self.backlog,
            clock=noon,
            observe=self.facts,
        )

    async def handle(self, event: Event) -> None:
        self.ran.append(event.id)
        self.running[event.id] = end = asyncio.Event()
        try:
            await end.wait()
        finally:
            del self.running[event.id]

    def finish(self, *keys: str) -> None:
        for key in keys or list(self.running):
            self.running[key].set()

    async def until(self, check: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not check():  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.001)

    async def settled(self, count: int) -> dict[str, Any]:
        await self.until(lambda: len(self.queue.settled) >= count)
        await self.until(lambda: self.facts.of(Settled))
        return dict(self.queue.outcomes())


@asynccontextmanager
async def working(*registrations: Registration, **more: Any) -> AsyncIterator[Stage]:
    stage = Stage(*registrations, **more)
    stage.worker.start(supervisor(stage.facts))
    yield stage
    await stage.worker.stop(0)
    assert stage.worker.held == {}
    assert stage.worker._admission.runs == {}
    assert not stage.worker._admission.waiting
    assert not stage.worker._admission.blocked


def claims(prefix: str, count: int, **more: Any) -> list[Any]:
    return [claim(f"{prefix}{n}", **more) for n in range(count)]


async def test_an_event_is_claimed_run_and_settled() -> None:
    async with working() as stage:
        stage.queue.put(claim("a"))
        await stage.until(lambda: stage.running)
        assert set(stage.worker.held) == {"a"}
        stage.finish()
        assert await stage.settled(1) == {"a": Done("handled")}
        await stage.until(lambda: not stage.worker.held)
        assert len(stage.facts.of(Claimed)) == 1
        (fact,) = stage.facts.of(Settled)
        assert fact.written == {"a": Done("handled")}


async def test_at_most_worker_count_handlers_run_at_once() -> None:  # W6
    async with working(count=3) as stage:
        stage.queue.put(*claims("e", 20))
        await stage.until(lambda: len(stage.running) == 3)
        while len(stage.queue.settled) < 20:
            assert len(stage.running) <= 3
            stage.finish()
            await asyncio.sleep(0)
        assert sorted(stage.ran) == sorted(f"e{n}" for n in range(20))


async def test_at_most_twice_the_free_slots_are_claimed() -> None:
    async with working(count=4) as stage:
        stage.queue.put(*claims("e", 50))
        await stage.until(lambda: len(stage.running) == 4)
        assert len(stage.worker.held) <= 8
        assert stage.queue.requests[0][0] == 8


async def test_a_claim_is_at_most_the_batch_size() -> None:
    async with working(count=20, batch=5) as stage:
        stage.queue.put(*claims("e", 50))
        await stage.until(lambda: len(stage.running) == 20)
        assert {limit for limit, _ in stage.queue.requests} == {5}


async def test_an_event_without_a_handler_is_ignored() -> None:
    async with working(registration(lambda event: None, "invoice.*")) as stage:
        stage.queue.put(claim("a"))
        assert await stage.settled(1) == {"a": Done("ignored")}


async def test_an_event_without_a_handler_is_parked_if_so_configured() -> None:
    async with working(registration(lambda event: None, "invoice.*"), park_unhandled=True) as stage:
        stage.queue.put(claim("a"))
        assert await stage.settled(1) == {"a": Release(parked=True)}


async def test_a_handler_at_its_limit_does_not_delay_others() -> None:
    stages: list[Stage] = []

    async def slow(event: Event) -> None:
        await stages[0].handle(event)

    async def quick(event: Event) -> None:
        await stages[0].handle(event)

    stage = Stage(registration(slow, "slow", concurrency=1), registration(quick, "quick"))
    stages.append(stage)
    stage.worker.start(supervisor(stage.facts))
    stage.queue.put(*claims("s", 30, event_type="slow"), *claims("q", 3, event_type="quick"))
    await stage.until(lambda: len(stage.running) == 4)
    assert sorted(stage.running) == ["q0", "q1", "q2", "s0"]
    await stage.until(lambda: stage.queue.settled)
    released = [o for k, o in stage.queue.outcomes().items() if k.startswith("s")]
    assert released
    assert all(o == Release(delay=timedelta(seconds=1)) for o in released)
    stage.finish("s0")
    await stage.until(lambda: "s1" in stage.running)  # in order
    assert sum(key.startswith("s") for key in stage.running) == 1
    await stage.worker.stop(0)
    assert stage.worker.held == {}


async def test_a_source_alone_leaves_a_slot_once_others_are_known() -> None:  # F24
    async with working(count=4) as stage:
        stage.queue.put(claim("x", source="x"))
        await stage.until(lambda: stage.running)
        assert stage.queue.requests[0][1].alone is None
        stage.queue.put(claim("y", source="y"))
        await stage.until(lambda: len(stage.running) == 2)
        stage.queue.put(claim("z", source="y"))
        await stage.until(lambda: len(stage.running) == 3)
        caps = stage.queue.requests[-1][1]
        assert (caps.share, caps.alone) == (2, 3)
        assert dict(caps.held) in ({"x": 1, "y": 2}, {"x": 1, "y": 1})


async def test_one_suspect_runs_at_a_time_beside_ordinary_events() -> None:  # S9, F23
    async with working() as stage:
        stage.queue.put(claim("one"), claim("killer", unsettled=2), claim("third", unsettled=3))
        await stage.until(lambda: set(stage.running) == {"one", "killer"})
        stage.queue.put(claim("two"))
        await stage.until(lambda: "two" in stage.running)
        await yield_to_loop()
        assert "third" not in stage.running
        stage.finish("killer")
        await stage.until(lambda: set(stage.running) == {"one", "two", "third"})


async def test_a_suspect_has_the_next_free_slot() -> None:  # S9
    async with working(count=1) as stage:
        stage.queue.put(*claims("e", 8))
        await stage.until(lambda: stage.running)
        stage.queue.put(claim("killer", unsettled=2))
        while stage.queue.suspects:
            stage.finish()
            await yield_to_loop()
        stage.finish()
        await stage.until(lambda: list(stage.running) == ["killer"])
        assert len(stage.ran) < 8


async def test_the_last_attempt_of_a_suspect_runs_with_nothing_beside_it() -> None:  # S9
    async with working() as stage:
        stage.queue.put(claim("one"))
        await stage.until(lambda: stage.running)
        stage.queue.put(claim("killer", unsettled=6, attempts=5))
        await yield_to_loop()
        requests = len(stage.queue.requests)
        stage.queue.put(claim("two"))
        await yield_to_loop()
        assert len(stage.queue.requests) == requests  # the held claims end first
        assert list(stage.running) == ["one"]
        stage.finish()
        await stage.until(lambda: list(stage.running) == ["killer"])
        await yield_to_loop()
        assert list(stage.running) == ["killer"]
        stage.finish()
        await stage.until(lambda: list(stage.running) == ["two"])


async def test_a_suspect_whose_next_crash_would_not_end_it_runs_beside_others() -> None:  # F58
    """Three kills from outside end no event, even if it has only one attempt."""
    async with working() as stage:
        stage.queue.put(claim("one"), claim("killer", unsettled=2, attempts=5))
        await stage.until(lambda: set(stage.running) == {"one", "killer"})


async def test_a_suspect_without_attempts_is_dead_lettered_beside_others() -> None:  # S9
    async with working() as stage:
        stage.queue.put(claim("one"), claim("killer", unsettled=7, attempts=6))
        await stage.settled(1)
        assert list(stage.running) == ["one"]
        (outcome,) = stage.queue.outcomes().values()
        assert isinstance(outcome, DeadLetter)
        assert outcome.failure.code == "crashed"


async def test_a_stop_does_not_wait_for_a_suspect_to_be_alone() -> None:  # S9
    async with working() as stage:
        stage.queue.put(claim("one"))
        await stage.until(lambda: stage.running)
        stage.queue.put(claim("killer", unsettled=6, attempts=5))
        await yield_to_loop()
        await stage.worker.stop(grace=0.0)
        assert isinstance(stage.queue.outcomes()["one"], Release)
        assert len(stage.queue.suspects) == 1  # never claimed


async def test_a_suspect_of_a_busy_handler_is_not_released() -> None:  # S9
    """Each release would refund its attempt, and it would never run out of attempts."""
    slow = registration(never_ending, concurrency=1)
    async with working(slow, count=2) as stage:
        stage.queue.put(*claims("e", 5))
        await stage.until(lambda: not stage.queue.due)
        stage.queue.put(claim("killer", unsettled=2))
        await stage.until(lambda: not stage.queue.suspects)
        await yield_to_loop()
        assert "killer" not in stage.queue.outcomes()


async def never_ending(event: Event) -> None:
    await asyncio.Event().wait()


async def yield_to_loop() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_the_context_of_a_run_is_not_seen_by_others() -> None:
    mine = ContextVar("mine", default="unset")
    seen: list[str] = []

    async def handler(event: Event) -> None:
        seen.append(mine.get())
        mine.set(event.id)

    async with working(registration(handler), count=1) as stage:
        stage.queue.put(*claims("e", 3))
        await stage.settled(3)
        assert seen == ["unset"] * 3


# --- claims and runs at the same time


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


# --- claims that are lost


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


# --- failures


async def test_a_claim_that_cannot_be_dispatched_is_not_held() -> None:  # S26
    """Its lease would be renewed for ever, and nobody would run it."""
    async with working() as stage:
        find, failures = stage.worker._registry.find, iter([ValueError("a bug")])

        def fail_once(source: str, event_type: str) -> Registration | None:
            if (error := next(failures, None)) is not None:
                raise error
            return find(source, event_type)

        stage.worker._registry.find = fail_once  # type: ignore[method-assign]
        stage.queue.put(claim("a"), claim("b"))
        await stage.until(lambda: stage.facts.of(ServiceFailed))
        assert stage.worker.held == {}
        stage.queue.put(claim("c"))
        await stage.until(lambda: list(stage.running) == ["c"])


async def test_a_settle_that_fails_for_a_while_is_tried_again_and_nothing_is_lost() -> None:
    async with working() as stage:
        stage.queue.failures.extend([Unavailable("busy")] * 3)
        stage.queue.put(*claims("e", 4))
        await stage.until(lambda: len(stage.running) == 4)
        stage.finish()
        assert set(await stage.settled(4)) == {"e0", "e1", "e2", "e3"}
        assert len(stage.facts.of(WorkerCallFailed)) == 3
        await stage.until(lambda: not stage.worker.held)


async def test_a_settlement_that_can_never_be_written_fails_alone() -> None:
    async with working() as stage:
        stage.queue.put(*claims("e", 3))
        await stage.until(lambda: len(stage.running) == 3)
        stage.queue.failures.extend([StoreError("all"), ValueError("first alone")])
        stage.finish()
        await stage.until(lambda: len(stage.queue.settled) == 2)
        await stage.until(lambda: not stage.worker.held)
        (failed,) = stage.facts.of(WorkerCallFailed)
        assert (failed.doing, failed.error) == ("settle", "first alone")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Unavailable("busy"), WorkerCallFailed), (ValueError("a bug"), ServiceFailed)],
)
async def test_a_claim_that_fails_is_tried_again(error: Exception, kind: type[Fact]) -> None:
    async with working() as stage:
        await stage.until(lambda: stage.queue.requests)
        stage.queue.claim_failures.extend([error, error])
        stage.queue.put(claim("a"))
        await stage.until(lambda: stage.running)
        assert len(stage.facts.of(kind)) == 2


async def test_outcomes_are_collected_while_a_commit_is_in_progress() -> None:
    async with working(count=8) as stage:
        stage.queue.put(*claims("e", 8))
        await stage.until(lambda: len(stage.running) == 8)
        stage.queue.open.clear()
        stage.finish("e0")
        await yield_to_loop()
        stage.finish()
        await yield_to_loop()
        stage.queue.open.set()
        await stage.settled(8)
        assert stage.queue.batches == [1, 7]


# --- the drain


async def test_a_drain_lets_running_handlers_finish_and_releases_the_others() -> None:  # W5, F26
    async with working(count=2) as stage:
        stage.queue.put(*claims("e", 4))
        await stage.until(lambda: len(stage.worker.held) == 4)
        stopping = asyncio.create_task(stage.worker.stop(5))
        await stage.until(lambda: len(stage.queue.settled) == 2)
        assert stage.queue.outcomes() == {"e2": Release(), "e3": Release()}
        stage.finish()
        await asyncio.wait_for(stopping, 5)
        outcomes = stage.queue.outcomes()
        assert outcomes["e0"] == outcomes["e1"] == Done("handled")
        assert stage.ran == ["e0", "e1"]


async def test_past_the_grace_period_running_handlers_are_released() -> None:  # W5
    async with working() as stage:
        stage.queue.put(claim("a"))
        await stage.until(lambda: stage.running)
        await asyncio.wait_for(stage.worker.stop(0.01), 5)
        assert stage.queue.outcomes() == {"a": Release()}
        assert stage.running == {}


async def test_a_second_signal_ends_the_grace_period() -> None:  # F26
    async with working() as stage:
        stage.queue.put(claim("a"))
        await stage.until(lambda: stage.running)
        stopping = asyncio.create_task(stage.worker.stop(3600))
        await yield_to_loop()
        assert not stopping.done()
        stage.worker.cancel_grace()
        await asyncio.wait_for(stopping, 2)
        assert stage.queue.outcomes() == {"a": Release()}


async def test_the_events_of_a_claim_in_progress_are_released() -> None:  # F26
    async with working() as stage:
        await stage.until(lambda: stage.queue.requests)
        stage.queue.open.clear()
        stage.queue.put(claim("a"))
        await yield_to_loop()
        stopping = asyncio.create_task(stage.worker.stop(0))
        await yield_to_loop()
        stage.queue.open.set()
        await asyncio.wait_for(stopping, 5)
        assert stage.queue.outcomes() == {"a": Release()}
        assert stage.ran == []


async def test_a_run_that_ignores_its_cancellation_is_released() -> None:
    let_end = asyncio.Event()
    started = asyncio.Event()

    async def uncancellable(event: Event) -> None:
        started.set()
        while not let_end.is_set():
            try:
                await let_end.wait()
            except asyncio.CancelledError:
                continue

    stage = Stage(registration(uncancellable))
    stage.worker.start(supervisor(stage.facts))
    stage.queue.put(claim("a"))
    await asyncio.wait_for(started.wait(), 5)
    await asyncio.wait_for(stage.worker.stop(0), 5)
    assert stage.queue.outcomes() == {"a": Release()}
    let_end.set()
    await yield_to_loop()


async def test_a_store_that_is_gone_does_not_delay_the_stop() -> None:
    stage = Stage()
    stage.worker.start(supervisor(stage.facts))
    stage.queue.put(claim("a"))
    await stage.until(lambda: stage.running)
    stage.queue.failures.extend([Unavailable("gone")] * 10_000)
    await asyncio.wait_for(stage.worker.stop(0), 5)
    assert stage.queue.settled == []


async def test_failed_runs_are_settled_by_their_kind() -> None:
    def fail(event: Event) -> None:
        raise ValueError("boom")

    async with working(registration(fail)) as stage:
        stage.queue.put(claim("a"), claim("b", attempts=5), claim("c", attempts=6, unsettled=7))
        outcomes = await stage.settled(3)
        assert isinstance(outcomes["a"], RetryLater)
        assert isinstance(outcomes["b"], DeadLetter)
        assert outcomes["c"].failure.code == "crashed"


# --- back-pressure


async def test_claimed_events_leave_the_backlog_and_released_ones_return() -> None:  # W7
    async with working(count=1) as stage:
        stage.queue.put(*claims("e", 2), claim("again", attempts=2))
        await stage.until(lambda: len(stage.worker.held) >= 2)
        released = await stage.worker.stop(0)
        claimed = sum(number for number in stage.backlog.claimed if number > 0)
        assert claimed == 2  # the event in its second attempt was off the backlog already
        assert sum(stage.backlog.claimed) == claimed - released


async def test_a_parked_event_does_not_return_to_the_backlog() -> None:  # W7
    async with working(registration(lambda event: None, "invoice.*"), park_unhandled=True) as stage:
        stage.queue.put(claim("a"))
        await stage.settled(1)
        assert sum(stage.backlog.claimed) == 1
