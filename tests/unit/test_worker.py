"""The worker: which events it claims, runs and settles, and how it drains."""

import asyncio
from contextvars import ContextVar
from datetime import timedelta

from ackbox.handlers import Event
from ackbox.model import DeadLetter, Done, Release
from ackbox.telemetry import Claimed, Settled
from ackbox.worker import Pauses
from support.time.supervisor import supervisor
from support.workers.runs import claim, registration
from support.workers.worker_stage import Stage, claims, working, yield_to_loop


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


async def test_the_next_suspect_follows_at_once() -> None:  # S9
    stage = Stage(pauses=Pauses(suspects=3600.0, cancel=0.05))
    stage.queue.put(claim("killer", unsettled=2), claim("second", unsettled=2))
    stage.worker.start(supervisor(stage.facts))
    await stage.until(lambda: list(stage.running) == ["killer"])
    stage.finish()
    await stage.until(lambda: list(stage.running) == ["second"])
    await stage.worker.stop(0)


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
