"""The supervisor of background loops (S26, F56)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ackbox.errors import Unavailable
from ackbox.services import Services, summarize
from ackbox.telemetry import (
    Fact,
    ServiceFailed,
    ServiceRecovered,
    ServiceStarted,
    combine_observers,
)
from support.ledgers.events import noon
from support.ledgers.facts import Facts


class Bench:
    """A supervisor whose delays pass at once, and a clock that moves by them."""

    def __init__(self, *, steady_after: float = 3600.0) -> None:
        self.facts = Facts()
        self.now = 0.0
        self.slept: list[float] = []
        self.failed, self.recovered = asyncio.Event(), asyncio.Event()
        self.services = Services(
            combine_observers(self.facts, self._signal),
            steady_after=steady_after,
            clock=noon,
            uniform=lambda low, high: high,
            sleep=self._sleep,
            monotonic=lambda: self.now,
        )

    def _signal(self, fact: Fact) -> None:
        if isinstance(fact, ServiceFailed):
            self.failed.set()
        if isinstance(fact, ServiceRecovered):
            self.recovered.set()

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self, step: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
        task = self.services.run("loop", step)
        yield
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


class Steps:
    """Each step ends with the next of these; after the last, a step waits for ever."""

    def __init__(self, *ends: BaseException | None) -> None:
        self.ends = list(ends)
        self.idle = asyncio.Event()

    async def __call__(self) -> None:
        if not self.ends:
            self.idle.set()
            await asyncio.Event().wait()
        if (end := self.ends.pop(0)) is not None:
            raise end


async def test_a_loop_that_raises_is_restarted_with_growing_delays_up_to_a_limit() -> None:
    bench, steps = Bench(), Steps(*[ValueError("x")] * 8)
    async with bench.running(steps):
        await asyncio.wait_for(steps.idle.wait(), 5)
    assert bench.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert [fact.failures for fact in bench.facts.of(ServiceFailed)] == list(range(1, 9))


async def test_a_step_that_succeeds_ends_the_failure_and_resets_the_delay() -> None:
    bench = Bench()
    steps = Steps(ValueError("x"), ValueError("x"), None, None, ValueError("y"))
    async with bench.running(steps):
        await asyncio.wait_for(steps.idle.wait(), 5)
    assert bench.slept == [0.1, 0.2, 0.1]
    assert [type(fact) for fact in bench.facts] == [
        *(ServiceStarted, ServiceFailed, ServiceFailed, ServiceRecovered, ServiceFailed)
    ]
    assert bench.facts.of(ServiceRecovered) == [ServiceRecovered("loop", 2)]


async def test_a_restarted_loop_that_waits_for_work_counts_as_recovered_after_a_while() -> None:
    bench, steps = Bench(steady_after=0.001), Steps(ValueError("x"))
    async with bench.running(steps):
        await asyncio.wait_for(bench.recovered.wait(), 5)
        assert bench.services.statuses[0].state == "running"


async def test_a_cancellation_of_what_a_loop_awaits_does_not_end_the_loop() -> None:
    bench, steps = Bench(), Steps(asyncio.CancelledError(), None)
    async with bench.running(steps):
        await asyncio.wait_for(steps.idle.wait(), 5)
    assert len(bench.facts.of(ServiceFailed)) == 1


async def test_an_operator_sees_name_state_failures_and_last_error() -> None:
    bench, steps = Bench(), Steps(Unavailable("The disk is gone."))
    async with bench.running(steps):
        (before,) = bench.services.statuses
        await asyncio.wait_for(steps.idle.wait(), 5)
        (after,) = bench.services.statuses
    assert (before.name, before.state, before.failures, before.error) == (
        "loop",
        "running",
        0,
        None,
    )
    assert (after.state, after.failures, after.error) == ("failing", 1, "The disk is gone.")


async def test_a_loop_that_keeps_failing_for_a_minute_is_critical() -> None:
    bench = Bench()
    many = asyncio.Event()
    seen: list[tuple[float, bool]] = []

    async def fail() -> None:
        seen.append((bench.now, bench.services.is_critical))
        if bench.now > 75:
            many.set()
        raise ValueError("x")

    async with bench.running(fail):
        await asyncio.wait_for(many.wait(), 5)
    # The failure of a step is recorded after the step was seen here.
    assert next(now for now, critical in seen if critical) == pytest.approx(66.3)
    assert not any(critical for now, critical in seen if now <= 60)


async def test_one_failure_long_ago_is_not_critical() -> None:
    bench, steps = Bench(), Steps(ValueError("x"))
    async with bench.running(steps):
        await asyncio.wait_for(steps.idle.wait(), 5)
        bench.now += 3600
        assert not bench.services.is_critical


async def sleep_for_ever(begun: asyncio.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


async def test_a_stopping_loop_ends_even_while_it_waits_for_its_restart() -> None:
    bench, stopping, sleeping = Bench(), asyncio.Event(), asyncio.Event()
    services = Services(bench.facts, clock=noon, sleep=lambda _: sleep_for_ever(sleeping))
    task = services.run("loop", Steps(ValueError("x")), stopping=stopping)
    await asyncio.wait_for(sleeping.wait(), 5)
    stopping.set()
    await asyncio.wait_for(task, 5)
    assert len(bench.facts.of(ServiceFailed)) == 1


async def test_a_loop_pauses_after_each_step_and_counts_as_recovered_before_the_pause() -> None:
    bench, steps = Bench(), Steps(None, ValueError("x"), None)
    task = bench.services.run("loop", steps, pause=60.0)
    await asyncio.wait_for(steps.idle.wait(), 5)
    task.cancel()
    assert bench.slept == [60.0, 0.1, 60.0]
    assert bench.facts.of(ServiceRecovered) == [ServiceRecovered("loop", 1)]


def test_the_summary_of_an_error_has_no_value_of_a_sender() -> None:
    with pytest.raises(ValueError, match="secret") as raised:
        int("secret")
    summary = summarize(raised.value)
    assert summary.startswith("ValueError in test_the_summary")
    assert "secret" not in summary
    assert summarize(KeyError("secret")) == "KeyError"


def test_an_observer_that_raises_stops_neither_the_others_nor_the_caller() -> None:  # S26, F56
    facts = Facts()
    errors: list[tuple[object, str]] = []

    def broken(fact: Fact) -> None:
        raise RuntimeError("x")

    observe = combine_observers(
        broken, facts, on_error=lambda observer, error: errors.append((observer, str(error)))
    )
    observe(ServiceStarted("a"))
    observe(ServiceStarted("b"))
    assert facts == [ServiceStarted("a"), ServiceStarted("b")]
    assert errors == [(broken, "x")] * 2
