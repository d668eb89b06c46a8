"""The worker: the store fails, or the process stops."""

import asyncio

import pytest

from ackbox.errors import StoreError, Unavailable
from ackbox.handlers import Event, Registration
from ackbox.model import DeadLetter, Done, Release, RetryLater
from ackbox.telemetry import Fact, ServiceFailed, WorkerCallFailed
from support.time.supervisor import supervisor
from support.workers.runs import claim, registration
from support.workers.worker_stage import Stage, claims, working, yield_to_loop


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


async def test_an_event_without_a_handler_that_is_claimed_during_a_stop_is_released() -> None:
    async with working(registration(lambda event: None, "invoice.*")) as stage:
        await stage.until(lambda: stage.queue.requests)
        stage.queue.open.clear()
        stage.queue.put(claim("a"))
        await yield_to_loop()
        stopping = asyncio.create_task(stage.worker.stop(0))
        await yield_to_loop()
        stage.queue.open.set()
        await asyncio.wait_for(stopping, 5)
        assert stage.queue.outcomes() == {"a": Release()}


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
