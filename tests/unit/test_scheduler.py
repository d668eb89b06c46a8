"""The scheduler: what it claims, what it runs, what it settles, how it drains."""

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
from ackbox.worker import Worker, WorkerConfig, scheduler, settlement, suspects
from support.events import noon
from support.facts import Facts
from support.runs import ScriptedQueue, claim, executor, registration, registry
from support.supervisor import supervisor


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (scheduler, settlement):
        monkeypatch.setattr(module, "_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(suspects, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(scheduler, "_CANCEL_SECONDS", 0.05)
    monkeypatch.setattr(scheduler, "_FLUSH_SECONDS", 0.5)


class Stage:
    """A worker with a scripted queue, and handlers that end when they are told to."""

    def __init__(self, *registrations: Registration, count: int = 4, **rules: Any) -> None:
        self.queue = ScriptedQueue()
        self.facts = Facts()
        self.running: dict[str, asyncio.Event] = {}
        self.ran: list[str] = []
        given = registrations or (registration(self.handle),)
        settings = {"lease": timedelta(seconds=30), "batch": 100, "park_unhandled": False, **rules}
        self.worker = Worker(
            self.queue,
            registry(*given),
            executor(),
            WorkerConfig(count=count, **settings),
            worker_id=WorkerId("w"),
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
            while not check():  # noqa: ASYNC110 - what it looks at has no event
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
    assert stage.worker._slots.runs == {}
    assert not stage.worker._slots.waiting
    assert not stage.worker._slots.passed


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


async def test_no_more_run_at_once_than_there_are_workers() -> None:  # W6
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
        assert stage.queue.asked[0][0] == 8


async def test_the_batch_size_is_the_ceiling_of_a_claim() -> None:
    async with working(count=20, batch=5) as stage:
        stage.queue.put(*claims("e", 50))
        await stage.until(lambda: len(stage.running) == 20)
        assert {limit for limit, _ in stage.queue.asked} == {5}


async def test_nobody_handles_it_and_it_is_ignored() -> None:
    async with working(registration(lambda event: None, "invoice.*")) as stage:
        stage.queue.put(claim("a"))
        assert await stage.settled(1) == {"a": Done("ignored")}


async def test_nobody_handles_it_and_it_is_held() -> None:
    async with working(registration(lambda event: None, "invoice.*"), park_unhandled=True) as stage:
        stage.queue.put(claim("a"))
        assert await stage.settled(1) == {"a": Release(parked=True)}


async def test_a_handler_at_its_limit_does_not_hold_up_others() -> None:
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
    back = [o for k, o in stage.queue.outcomes().items() if k.startswith("s")]
    assert back
    assert all(o == Release(delay=timedelta(seconds=1)) for o in back)
    stage.finish("s0")
    await stage.until(lambda: "s1" in stage.running)  # in order
    assert sum(key.startswith("s") for key in stage.running) == 1
    await stage.worker.stop(0)
    assert stage.worker.held == {}


async def test_a_source_alone_leaves_a_slot_once_others_are_known() -> None:  # F24
    async with working(count=4) as stage:
        stage.queue.put(claim("x", source="x"))
        await stage.until(lambda: stage.running)
        assert stage.queue.asked[0][1].alone is None
        stage.queue.put(claim("y", source="y"))
        await stage.until(lambda: len(stage.running) == 2)
        stage.queue.put(claim("z", source="y"))
        await stage.until(lambda: len(stage.running) == 3)
        caps = stage.queue.asked[-1][1]
        assert (caps.share, caps.alone) == (2, 3)
        assert dict(caps.held) in ({"x": 1, "y": 2}, {"x": 1, "y": 1})


async def test_one_suspect_runs_at_a_time_beside_ordinary_events() -> None:  # S9, F23
    async with working() as stage:
        stage.queue.put(claim("one"), claim("killer", unsettled=2), claim("third", unsettled=3))
        await stage.until(lambda: set(stage.running) == {"one", "killer"})
        stage.queue.put(claim("two"))
        await stage.until(lambda: "two" in stage.running)
        await some_turns()
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
            await some_turns()
        stage.finish()
        await stage.until(lambda: list(stage.running) == ["killer"])
        assert len(stage.ran) < 8


async def test_the_last_attempt_of_a_suspect_runs_with_nothing_beside_it() -> None:  # S9
    async with working() as stage:
        stage.queue.put(claim("one"))
        await stage.until(lambda: stage.running)
        stage.queue.put(claim("killer", unsettled=6, attempts=5))
        await some_turns()
        asked = len(stage.queue.asked)
        stage.queue.put(claim("two"))
        await some_turns()
        assert len(stage.queue.asked) == asked  # what is held ends first
        assert list(stage.running) == ["one"]
        stage.finish()
        await stage.until(lambda: list(stage.running) == ["killer"])
        await some_turns()
        assert list(stage.running) == ["killer"]
        stage.finish()
        await stage.until(lambda: list(stage.running) == ["two"])


async def test_a_suspect_that_its_next_crash_would_not_end_runs_beside_others() -> None:  # F58
    """With one attempt, too, three kills from outside end no event."""
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
        await some_turns()
        await stage.worker.stop(grace=0.0)
        assert isinstance(stage.queue.outcomes()["one"], Release)
        assert len(stage.queue.suspects) == 1  # never claimed


async def test_a_suspect_of_a_busy_handler_is_not_handed_back() -> None:  # S9
    """Or it would no longer be a suspect, and never run out of attempts."""
    slow = registration(never_ending, concurrency=1)
    async with working(slow, count=2) as stage:
        stage.queue.put(*claims("e", 5))
        await stage.until(lambda: not stage.queue.due)
        stage.queue.put(claim("killer", unsettled=2))
        await stage.until(lambda: not stage.queue.suspects)
        await some_turns()
        assert "killer" not in stage.queue.outcomes()


async def never_ending(event: Event) -> None:
    await asyncio.Event().wait()


async def some_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_what_a_run_sets_in_its_context_no_other_sees() -> None:
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


class Busy:
    """A worker with quick handlers and a backlog, and what happened in which order."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, backlog: int, slow_store: bool = False
    ) -> None:
        self._slow_store = slow_store
        self.stage = Stage(registration(self.handle), count=2, batch=10)
        self.happened: list[str] = []
        self.unstarted: list[int] = []
        self._given = self._ran = 0
        self._claim = self.stage.queue.claim
        monkeypatch.setattr(self.stage.queue, "claim", self.claim)
        self.stage.queue.put(*claims("e", backlog))

    async def claim(self, *given: Any, limit: int, **more: Any) -> list[Any]:
        self.happened.append("asked")
        await asyncio.sleep(0)
        while self._slow_store and (  # noqa: ASYNC110 - runs tell nobody
            self._ran < self._given or self.stage.worker._slots.runs
        ):
            await asyncio.sleep(0)
        got = await self._claim(*given, limit=limit, **more)
        self._given += len(got)
        self.unstarted.append(self._given - self._ran)
        self.happened.append("given")
        return got

    async def handle(self, event: Event) -> None:
        self._ran += 1
        self.happened.append("ran")

    async def work(self, count: int) -> None:
        self.stage.worker.start(supervisor(self.stage.facts))
        await self.stage.settled(count)
        await self.stage.worker.stop(0)


async def test_the_next_claim_is_sent_before_the_runs_of_a_full_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = Busy(monkeypatch, backlog=200, slow_store=True)
    await busy.work(200)
    again = [after for now, after in pairwise(busy.happened) if now == "given"]
    assert again[-8:-4] == ["asked"] * 4  # before the last ones, which find less than they ask for
    assert sorted(busy.stage.queue.outcomes()) == sorted(f"e{n}" for n in range(200))


async def test_what_was_claimed_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(monkeypatch, backlog=300)
    await busy.work(300)
    assert 10 < max(busy.unstarted) <= 20 + 2  # two have a slot, and not taken their first step


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
async def test_a_run_that_the_users_own_code_cancels_has_failed(by: str) -> None:
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


async def test_a_lost_claim_that_waits_is_never_run() -> None:
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
        stage.worker.lose([old], "gone")  # the heartbeat had it in hand while it was settled
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
        stage.worker._slots.hold([doomed])
        stage.worker._take(doomed)
        stage.worker._slots.fill()
        stage.worker.lose([doomed], "gone")
        stage.queue.put(claim("b"))
        await stage.until(lambda: list(stage.running) == ["b"])


# --- trouble


async def test_a_claim_that_cannot_be_taken_is_not_held() -> None:  # S26
    """It would be renewed for ever, and run by nobody."""
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
        (unavailable_reason,) = stage.facts.of(WorkerCallFailed)
        assert (unavailable_reason.doing, unavailable_reason.error) == ("settle", "first alone")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Unavailable("busy"), WorkerCallFailed), (ValueError("a bug"), ServiceFailed)],
)
async def test_a_claim_that_fails_is_tried_again(error: Exception, kind: type[Fact]) -> None:
    async with working() as stage:
        await stage.until(lambda: stage.queue.asked)
        stage.queue.claim_failures.extend([error, error])
        stage.queue.put(claim("a"))
        await stage.until(lambda: stage.running)
        assert len(stage.facts.of(kind)) == 2


async def test_ends_gather_while_a_commit_is_under_way() -> None:
    async with working(count=8) as stage:
        stage.queue.put(*claims("e", 8))
        await stage.until(lambda: len(stage.running) == 8)
        stage.queue.open.clear()
        stage.finish("e0")
        await asyncio.sleep(0.01)
        stage.finish()
        await asyncio.sleep(0.01)
        stage.queue.open.set()
        await stage.settled(8)
        assert stage.queue.batches == [1, 7]


# --- the drain


async def test_a_drain_lets_running_handlers_finish_and_hands_back_who_waits() -> None:  # W5, F26
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


async def test_past_the_grace_running_handlers_are_handed_back() -> None:  # W5
    async with working() as stage:
        stage.queue.put(claim("a"))
        await stage.until(lambda: stage.running)
        await asyncio.wait_for(stage.worker.stop(0.01), 5)
        assert stage.queue.outcomes() == {"a": Release()}
        assert stage.running == {}


async def test_a_second_signal_cuts_the_grace_short() -> None:  # F26
    async with working() as stage:
        stage.queue.put(claim("a"))
        await stage.until(lambda: stage.running)
        stopping = asyncio.create_task(stage.worker.stop(3600))
        await asyncio.sleep(0.01)
        assert not stopping.done()
        stage.worker.cancel_grace()
        await asyncio.wait_for(stopping, 2)
        assert stage.queue.outcomes() == {"a": Release()}


async def test_what_a_claim_under_way_takes_is_handed_back() -> None:  # F26
    async with working() as stage:
        await stage.until(lambda: stage.queue.asked)
        stage.queue.open.clear()
        stage.queue.put(claim("a"))
        await asyncio.sleep(0.01)
        stopping = asyncio.create_task(stage.worker.stop(0))
        await asyncio.sleep(0.01)
        stage.queue.open.set()
        await asyncio.wait_for(stopping, 5)
        assert stage.queue.outcomes() == {"a": Release()}
        assert stage.ran == []


async def test_a_handler_that_will_not_be_cancelled_is_handed_back_all_the_same() -> None:
    let_go = asyncio.Event()
    started = asyncio.Event()

    async def stubborn(event: Event) -> None:
        started.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    stage = Stage(registration(stubborn))
    stage.worker.start(supervisor(stage.facts))
    stage.queue.put(claim("a"))
    await asyncio.wait_for(started.wait(), 5)
    await asyncio.wait_for(stage.worker.stop(0), 5)
    assert stage.queue.outcomes() == {"a": Release()}
    let_go.set()
    await asyncio.sleep(0.01)


async def test_a_store_that_is_gone_does_not_keep_us_from_stopping() -> None:
    stage = Stage()
    stage.worker.start(supervisor(stage.facts))
    stage.queue.put(claim("a"))
    await stage.until(lambda: stage.running)
    stage.queue.failures.extend([Unavailable("gone")] * 10_000)
    await asyncio.wait_for(stage.worker.stop(0), 5)
    assert stage.queue.settled == []


async def test_failed_runs_are_settled_as_what_they_are() -> None:
    def fail(event: Event) -> None:
        raise ValueError("boom")

    async with working(registration(fail)) as stage:
        stage.queue.put(claim("a"), claim("b", attempts=5), claim("c", attempts=6, unsettled=7))
        outcomes = await stage.settled(3)
        assert isinstance(outcomes["a"], RetryLater)
        assert isinstance(outcomes["b"], DeadLetter)
        assert outcomes["c"].failure.code == "crashed"
