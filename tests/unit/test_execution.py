"""How a run of a handler ends, and which outcome that is."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from ackbox.handlers import Dead, Event, Retry, Snooze, Tx
from ackbox.model import DeadLetter, Done, Failure, Outcome, RetryLater, Snoozed
from ackbox.telemetry import AbandonedEnded, Fact, HandlerAbandoned, Observer, combine_observers
from ackbox.worker.abandoned_runs import AbandonedRuns
from support.ledgers.events import NOON
from support.time.clocks import ManualTimers
from support.time.polling import until
from support.workers.runs import claim, executor, registration


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """A gate at which handlers hang; it opens at the end of the test."""
    opened = threading.Event()
    yield opened
    opened.set()


async def run(handler: Any, *, attempts: int = 1, unsettled: int = 0, **limits: Any) -> Outcome:
    claimed = claim(attempts=attempts, unsettled=unsettled)
    return await executor().run(claimed, registration(handler, **limits))


async def run_without_location(handler: Any, *, attempts: int = 1) -> Outcome:
    """Return the outcome without location and traceback of its failure."""
    outcome = await run(handler, attempts=attempts)
    assert isinstance(outcome, RetryLater | DeadLetter)
    return replace(outcome, failure=replace(outcome.failure, where=None, traceback=None))


def noting(seen: list[Event]) -> Callable[..., None]:
    def handler(event: Event) -> None:
        seen.append(event)

    return handler


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_that_returns_is_done(is_async: bool) -> None:
    seen: list[Event] = []

    async def waits(event: Event) -> None:
        seen.append(event)

    def plain(event: Event) -> None:
        seen.append(event)

    assert await run(waits if is_async else plain) == Done("handled")
    assert [event.id for event in seen] == ["a"]


async def test_a_plain_handler_runs_in_a_thread_of_its_own() -> None:
    threads: list[threading.Thread] = []
    await run(lambda event: threads.append(threading.current_thread()))
    assert threads != [threading.current_thread()]
    assert threads[0].daemon


@pytest.mark.parametrize("number", [b"1.5e+9999", b"-1e400", b"9" * 5000])
async def test_a_number_out_of_pythons_range_is_an_error_that_says_how_to_read_it(
    number: bytes,
) -> None:  # C7
    seen: list[Event] = []
    given = claim(payload=b'{"n": %s, "s": 1}' % number)
    await executor().run(given, registration(noting(seen)))
    (event,) = seen

    with pytest.raises(
        ValueError, match=r"out of range.*json\.loads\(event\.body, parse_float=Decimal"
    ):
        event.json()

    read = json.loads(event.body, parse_float=Decimal, parse_int=Decimal)
    assert read == {"n": Decimal(number.decode()), "s": 1}


async def test_the_event_has_every_field_of_the_claim() -> None:
    seen: list[Event] = []
    given = claim(
        payload=b'{"n": 1, "s": "\\u00fc"}',
        headers='{"x-topic":"a"}',
        attempts=2,
        run=3,
        lane="l",
        source_sequence=7,
        source_emitted_at=NOON,
    )
    await executor().run(given, registration(noting(seen)))
    (event,) = seen
    assert event.json() == {"n": 1, "s": "ü"}
    assert event.text() == '{"n": 1, "s": "\\u00fc"}'
    assert event.headers == {"x-topic": "a"}
    shared = ("id", "source", "idempotency_key", "event_type", "attempts", "run", "lane")
    more = ("source_sequence", "source_emitted_at", "created_at")
    for name in (*shared, *more):
        assert getattr(event, name) == getattr(given, name)


@pytest.mark.parametrize("error", [None, ValueError("failed")])
async def test_a_tx_refuses_effects_after_its_run(error: Exception | None) -> None:
    used: list[Tx] = []

    async def handler(event: Event, tx: Tx) -> None:
        used.append(tx)
        if error is not None:
            raise error

    await run(handler)
    with pytest.raises(RuntimeError, match=r"^tx\.execute was called after the run had ended"):
        used[0].execute("DELETE FROM mine")
    with pytest.raises(RuntimeError, match=r"^tx\.send was called after the run had ended"):
        used[0].send("late")


async def test_effects_come_with_the_outcome_for_their_failure() -> None:
    def handler(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO mine VALUES (:a)", a=1)

    outcome = await run(handler)
    assert isinstance(outcome, Done)
    assert [s.params for s in outcome.effects] == [{"a": 1}]
    assert outcome.on_effect_failure == RetryLater(Failure("", "tx"), timedelta(seconds=10))
    last = await run(handler, attempts=5)
    assert isinstance(last, Done)
    assert last.on_effect_failure == DeadLetter(Failure("", "tx"))


class _BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


RAISED = [
    (ValueError("boom"), Failure("ValueError: boom", "ValueError")),
    (KeyError("k"), Failure("KeyError: 'k'", "KeyError")),
    (AssertionError(), Failure("AssertionError", "AssertionError")),
    (TimeoutError("theirs"), Failure("TimeoutError: theirs", "TimeoutError")),
    (_BadText(), Failure("_BadText: (its text cannot be had: RuntimeError)", "_BadText")),
    (asyncio.CancelledError(), Failure("CancelledError", "CancelledError")),
    (SystemExit(3), Failure("SystemExit: 3", "SystemExit")),
    (KeyboardInterrupt(), Failure("KeyboardInterrupt", "KeyboardInterrupt")),
]


@pytest.mark.parametrize(("error", "failure"), RAISED, ids=lambda value: type(value).__name__)
async def test_whatever_a_handler_raises_is_a_failed_run(
    error: BaseException, failure: Failure
) -> None:
    async def handler(event: Event) -> None:
        raise error

    assert await run_without_location(handler) == RetryLater(failure, timedelta(seconds=10))
    assert await run_without_location(handler, attempts=4) == RetryLater(
        failure, timedelta(seconds=40)
    )
    assert await run_without_location(handler, attempts=5) == DeadLetter(failure)  # L10


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failed_run_names_where_it_failed(is_async: bool) -> None:
    def fail(event: Event) -> None:
        raise ValueError("secret")

    async def handler(event: Event) -> None:
        fail(event)

    outcome = await run(handler if is_async else fail)
    assert isinstance(outcome, RetryLater)
    name = test_a_failed_run_names_where_it_failed.__name__
    line = fail.__code__.co_firstlineno + 1
    assert outcome.failure.where == f"{name}.<locals>.fail (test_execution.py:{line})"


@pytest.mark.parametrize(
    "error", [ValueError("boom"), SystemExit(3), StopIteration(), asyncio.CancelledError()]
)
async def test_whatever_a_plain_handler_raises_is_a_failed_run(error: BaseException) -> None:
    def handler(event: Event) -> None:
        raise error

    outcome = await run(handler)
    assert isinstance(outcome, RetryLater)
    assert type(error).__name__ in outcome.failure.error


async def test_a_plain_function_that_returns_a_coroutine_is_no_success() -> None:
    async def inner() -> None: ...

    outcome = await run(lambda event: inner())
    assert isinstance(outcome, RetryLater)
    assert "async def" in outcome.failure.error


async def test_retry_sets_the_delay_and_spends_an_attempt() -> None:
    def handler(event: Event) -> None:
        raise Retry("rate limited", after="10m")

    failure = Failure("rate limited", "Retry")
    assert await run_without_location(handler) == RetryLater(failure, timedelta(minutes=10))
    assert await run_without_location(handler, attempts=5) == DeadLetter(failure)


async def test_retry_without_a_delay_follows_the_policy() -> None:
    def handler(event: Event) -> None:
        raise Retry

    outcome = await run(handler, attempts=2)
    assert isinstance(outcome, RetryLater)
    assert outcome.delay == timedelta(seconds=20)


async def test_dead_makes_a_dead_letter_at_once() -> None:
    def handler(event: Event) -> None:
        raise Dead("no such customer")

    assert await run_without_location(handler) == DeadLetter(Failure("no such customer", "Dead"))


@pytest.mark.parametrize("decision", [Dead("no"), Retry("later")])
@pytest.mark.parametrize("link", ["none", "cause", "context", "hidden"])
async def test_a_decision_has_a_traceback_only_if_an_error_led_to_it(
    decision: Exception, link: str
) -> None:  # N2
    async def handler(event: Event) -> None:
        if link == "none":
            raise decision
        try:
            event.json()["amount"]
        except KeyError as error:
            if link == "context":
                raise decision  # noqa: B904 - without `from` on purpose
            raise decision from (error if link == "cause" else None)

    decision.__cause__, decision.__context__, decision.__traceback__ = None, None, None
    decision.__suppress_context__ = False
    outcome = await run(handler)
    assert isinstance(outcome, RetryLater | DeadLetter)
    shown = outcome.failure.traceback
    assert (shown is not None) == (link in ("cause", "context"))
    assert shown is None or "KeyError: 'amount'" in shown
    assert outcome.failure.where is not None


async def test_a_handler_has_its_own_limit_of_attempts() -> None:
    def handler(event: Event) -> None:
        raise ValueError("boom")

    assert isinstance(await run(handler, attempts=1, max_attempts=2), RetryLater)
    assert isinstance(await run(handler, attempts=2, max_attempts=2), DeadLetter)
    assert isinstance(await run(handler, attempts=7, max_attempts=8), RetryLater)


async def test_an_event_whose_last_attempt_ended_with_the_process_is_not_run() -> None:  # F23
    ran: list[Event] = []
    outcome = await run(noting(ran), attempts=6, unsettled=4)
    assert isinstance(outcome, DeadLetter)
    assert outcome.failure.code == "crashed"
    assert ran == []


async def test_three_runs_that_ended_with_the_process_leave_a_fourth() -> None:  # S9, F58
    ran: list[Event] = []
    assert isinstance(await run(noting(ran), attempts=2, unsettled=3, max_attempts=1), Done)
    assert len(ran) == 1


@pytest.mark.parametrize("unsettled", [0, 1, 2, 3])
async def test_past_a_lowered_attempt_limit_there_is_one_last_run(
    unsettled: int,
) -> None:  # S25
    ran: list[Event] = []
    assert isinstance(await run(noting(ran), attempts=9, unsettled=unsettled), Done)
    assert len(ran) == 1

    def handler(event: Event) -> None:
        raise ValueError("boom")

    assert isinstance(await run(handler, attempts=9, unsettled=unsettled), DeadLetter)


async def test_an_async_handler_past_its_timeout_is_cancelled() -> None:
    ended: list[str] = []

    async def handler(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    outcome = await run(handler, timeout="10ms")
    assert isinstance(outcome, RetryLater)
    assert outcome.delay == timedelta(seconds=10)
    assert (outcome.failure.error, outcome.failure.code) == ("it took longer than 10ms", "timeout")
    assert "await asyncio.Event().wait()" in str(outcome.failure.traceback)  # N2
    assert ended == ["cancelled"]


async def test_a_thread_past_its_timeout_is_abandoned_and_counted(gate: threading.Event) -> None:
    facts: list[Fact] = []
    ended = asyncio.Queue[AbandonedEnded]()
    made = executor(observe=combine_observers(facts.append, noting_ends(ended)))
    hang = registration(lambda event: gate.wait(), timeout="10ms")
    for _ in range(2):
        outcome = await made.run(claim(), hang)
        assert isinstance(outcome, RetryLater)
        assert outcome.failure.code == "timeout"
        assert "gate.wait()" in str(outcome.failure.traceback)  # N2
    assert [len(fact.hung) for fact in facts if isinstance(fact, HandlerAbandoned)] == [1, 2]
    assert made.abandoned == 2
    gate.set()
    for _ in range(2):
        await asyncio.wait_for(ended.get(), 5)
    assert made.abandoned == 0


@pytest.mark.parametrize("late", [ValueError("late"), StopIteration(), SystemExit(3)])
async def test_an_abandoned_thread_that_fails_later_disturbs_no_other_run(
    gate: threading.Event, late: BaseException
) -> None:  # C11
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    ended = asyncio.Queue[AbandonedEnded]()
    made = executor(observe=noting_ends(ended))

    def handler(event: Event) -> None:
        gate.wait()
        raise late

    assert isinstance(await made.run(claim(), registration(handler, timeout="10ms")), RetryLater)
    gate.set()
    fact = await asyncio.wait_for(ended.get(), 5)
    await asyncio.sleep(0)  # asyncio reports unretrieved exceptions now
    assert (fact.claim.id, fact.left, made.abandoned) == ("a", 0, 0)
    assert fact.failure is not None
    assert fact.failure.code == type(late).__name__
    assert "raise late" in str(fact.failure.traceback)
    assert reported == []


async def test_an_abandoned_thread_that_returns_later_is_reported(gate: threading.Event) -> None:
    ended = asyncio.Queue[AbandonedEnded]()
    made = executor(observe=noting_ends(ended))
    await made.run(claim(), registration(lambda event: gate.wait(), timeout="10ms"))
    gate.set()
    fact = await asyncio.wait_for(ended.get(), 5)
    assert fact.failure is None


async def test_an_abandoned_handler_is_named_with_its_event_and_its_stack(
    gate: threading.Event,
) -> None:  # N9
    facts: list[Fact] = []
    made = executor(observe=facts.append)

    def hangs_here(event: Event) -> None:
        gate.wait()

    await made.run(claim("e-1"), registration(hangs_here, timeout="10ms"))
    (fact,) = facts
    assert isinstance(fact, HandlerAbandoned)
    assert fact.handler.endswith("hangs_here")
    assert fact.claim.id == "e-1"
    assert "gate.wait()" in str(fact.stack)
    assert "ackbox/worker" not in str(fact.stack)
    (hung,) = fact.hung
    assert hung.startswith(f"{fact.handler} (event e-1, in ")
    assert "hangs_here (test_execution.py:" in hung


async def test_an_abandoned_task_is_named_with_its_event_and_its_stack() -> None:  # N9
    facts: list[Fact] = []
    ended = asyncio.Queue[AbandonedEnded]()
    made = executor(observe=combine_observers(facts.append, noting_ends(ended)))
    cancelled, let_end = asyncio.Event(), asyncio.Event()

    async def deeper() -> None:
        await let_end.wait()

    async def handler(event: Event) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        cancelled.set()
        await deeper()
        raise ValueError("late")

    claimed, registered = claim("e-1"), registration(handler, timeout="1ms")
    task = asyncio.create_task(made.run(claimed, registered))
    await asyncio.wait_for(cancelled.wait(), 5)
    outcome = made.abandon_task(task, claimed, registered)
    let_end.set()
    late = await asyncio.wait_for(ended.get(), 5)

    assert isinstance(outcome, RetryLater)
    assert "await let_end.wait()" in str(outcome.failure.traceback)
    assert isinstance(fact := facts[0], HandlerAbandoned)
    assert (fact.claim.id, fact.stack) == ("e-1", outcome.failure.traceback)
    assert late.failure is not None
    assert late.failure.error == "ValueError: late"


def join_handler_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "ackbox-handler":
            thread.join(5)


async def test_an_abandoned_run_that_is_cancelled_ends_without_a_failure() -> None:  # N9
    facts: list[Fact] = []
    abandoned = AbandonedRuns(facts.append)
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hung = registration(noting([]))
    abandoned.add(end, claim(), hung, [])
    end.cancel()
    await asyncio.sleep(0)  # the event loop calls what waits for the end
    assert len(abandoned) == 0
    assert facts[1:] == [AbandonedEnded(claim(), hung.name, None, 0)]


def noting_ends(ended: "asyncio.Queue[AbandonedEnded]") -> Observer:
    def observe(fact: Fact) -> None:
        if isinstance(fact, AbandonedEnded):
            ended.put_nowait(fact)

    return observe


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_cancelled_run_has_no_outcome(is_async: bool, gate: threading.Event) -> None:
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def waits(event: Event) -> None:
        started.set()
        await asyncio.Event().wait()

    def plain(event: Event) -> None:
        loop.call_soon_threadsafe(started.set)
        gate.wait()

    made = executor()
    task = asyncio.create_task(made.run(claim(), registration(waits if is_async else plain)))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made.abandoned == 0  # S7: the handler is not at fault when its claim is lost


async def test_a_thread_whose_claim_was_lost_hangs_only_past_its_own_timeout(
    gate: threading.Event,
) -> None:  # S7
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    facts: list[Fact] = []
    timers = ManualTimers()

    def wait_at_gate() -> None:
        loop.call_soon_threadsafe(started.set)
        gate.wait()

    def hangs(event: Event) -> None:
        wait_at_gate()

    made = executor(observe=facts.append, timers=timers.as_timers)
    task = asyncio.create_task(made.run(claim(), registration(hangs, timeout="300ms")))
    await asyncio.wait_for(started.wait(), 5)
    timers.move_to(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    timers.move_to(0.299)
    assert made.abandoned == 0
    timers.move_to(0.3)
    assert made.abandoned == 1
    assert "wait_at_gate()" in str(getattr(facts[0], "stack", None))


async def test_a_thread_whose_claim_was_lost_and_that_ends_is_never_abandoned(
    gate: threading.Event,
) -> None:  # S7
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    facts: list[Fact] = []
    timers = ManualTimers()
    made = executor(observe=facts.append, timers=timers.as_timers)
    ends = registration(
        lambda event: (loop.call_soon_threadsafe(started.set), gate.wait()), timeout="30ms"
    )
    task = asyncio.create_task(made.run(claim(), ends))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await asyncio.to_thread(join_handler_threads)
    # The event loop notices the end of the thread: only the timer that all runs with this time-out
    # share is left.
    await until(lambda: len(timers.timers) == 1)
    timers.move_to(1.0)  # past its time-out
    assert facts == []


async def test_the_default_timeout_is_that_of_the_policy() -> None:
    async def handler(event: Event) -> None:
        await asyncio.Event().wait()

    made = executor(timeout=timedelta(milliseconds=10))
    assert isinstance(await made.run(claim(), registration(handler)), RetryLater)


class Throttled(Retry):
    def __init__(self) -> None:
        """Skip the constructor of the parent."""


class Unsayable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Odd(BaseException):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Throttled(), "Throttled"),
        (Unsayable(), "Unsayable"),
        (Odd(), "Odd"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (StopIteration(), "StopIteration"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_fails_however_odd_its_exception_is(
    error: BaseException, code: str, is_async: bool
) -> None:
    async def waits(event: Event) -> None:
        raise error

    def plain(event: Event) -> None:
        raise error

    if is_async and isinstance(error, StopIteration):
        code = "RuntimeError"  # Python turns it into one: a coroutine cannot raise it
    outcome = await run(waits if is_async else plain)
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.code == code


@pytest.mark.parametrize(
    ("after", "delay"), [("10m", timedelta(minutes=10)), (0.1, timedelta(seconds=1))]
)
@pytest.mark.parametrize("attempts", [1, 5])
async def test_a_snooze_waits_at_least_a_second_and_is_never_the_last_attempt(
    after: Any, delay: timedelta, attempts: int
) -> None:  # N17
    async def handler(event: Event) -> None:
        raise Snooze("rate limited", after=after)

    assert await run(handler, attempts=attempts) == Snoozed(delay, "rate limited")


@pytest.mark.parametrize(
    ("arrived", "replayed", "kind"),
    [
        (timedelta(days=6, hours=23), None, Snoozed),
        (timedelta(days=7), None, RetryLater),
        (timedelta(days=30), timedelta(days=6), Snoozed),
        (timedelta(days=30), timedelta(days=7), RetryLater),
    ],
)
async def test_past_the_maximum_age_a_snooze_is_a_retry(
    arrived: timedelta, replayed: timedelta | None, kind: type
) -> None:  # N17
    def handler(event: Event) -> None:
        raise Snooze("rate limited", after="10m")

    since = None if replayed is None else NOON - replayed
    old = claim(created_at=NOON - arrived, replayed_at=since)
    outcome = await executor().run(old, registration(handler))
    assert isinstance(outcome, kind)
    if isinstance(outcome, RetryLater):
        assert (outcome.failure.code, outcome.delay) == ("Snooze", timedelta(minutes=10))
        last = replace(old, attempts=5)
        assert isinstance(await executor().run(last, registration(handler)), DeadLetter)


@pytest.mark.parametrize(
    ("arrived", "replayed", "delay"),
    [
        (timedelta(0), None, timedelta(days=7)),
        (timedelta(days=5), None, timedelta(days=2)),
        (timedelta(days=30), timedelta(days=6), timedelta(days=1)),
        (timedelta(days=7) - timedelta(milliseconds=1), None, timedelta(seconds=1)),
    ],
)
async def test_a_snooze_ends_at_the_maximum_age_at_the_latest(
    arrived: timedelta, replayed: timedelta | None, delay: timedelta
) -> None:  # N17
    def handler(event: Event) -> None:
        raise Snooze("rate limited", after="800d")

    since = None if replayed is None else NOON - replayed
    old = claim(created_at=NOON - arrived, replayed_at=since)
    outcome = await executor().run(old, registration(handler))
    assert outcome == Snoozed(delay, "rate limited")


@pytest.mark.parametrize("wrong", [None, [60], b"1m"])
async def test_a_retry_after_nonsense_is_a_failed_run(wrong: Any) -> None:
    async def handler(event: Event) -> None:
        raise Snooze("closed", after=wrong)

    outcome = await run(handler)
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.code == "TypeError"


@pytest.mark.parametrize("wrong", [None, b"INSERT", 5])
async def test_an_effect_that_is_not_text_is_a_failed_run(wrong: Any) -> None:
    async def handler(event: Event, tx: Tx) -> None:
        tx.execute(wrong)

    outcome = await run(handler)
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.code == "TypeError"


async def test_a_handler_that_returns_too_late_has_failed() -> None:
    async def handler(event: Event) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    outcome = await run(handler, timeout=timedelta(milliseconds=1))
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.code == "timeout"


async def test_an_exception_raised_during_the_cancellation_is_the_failure() -> None:
    async def handler(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("cleaning up failed")

    outcome = await run(handler, timeout="1ms")
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.code == "ValueError"


async def test_a_timeout_raised_during_the_cancellation_is_a_timeout() -> None:
    async def handler(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise TimeoutError

    outcome = await run(handler, timeout="1ms")
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.code == "timeout"


async def test_a_run_past_its_timeout_leaves_its_task_uncancelled() -> None:
    async def handler(event: Event) -> None:
        await asyncio.Event().wait()

    await run(handler, timeout="1ms")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_run_past_its_timeout_that_is_cancelled_too_has_no_outcome() -> None:
    cancelled = asyncio.Event()

    async def handler(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(executor().run(claim(), registration(handler, timeout="1ms")))
    await asyncio.wait_for(cancelled.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_run_is_unresponsive_only_long_after_its_cancellation() -> None:
    cancelled, let_end = asyncio.Event(), asyncio.Event()
    timers = ManualTimers()

    async def handler(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            await let_end.wait()

    made = executor(timers=timers.as_timers)
    task = asyncio.create_task(made.run(claim(), registration(handler, timeout="1s")))
    await asyncio.sleep(0)
    timers.move_to(1.0)
    await asyncio.wait_for(cancelled.wait(), 5)
    timers.move_to(6.0)
    assert made.unresponsive() == []
    timers.move_to(6.1)
    assert made.unresponsive() == [task]
    let_end.set()
    await task
    assert made.unresponsive() == []


async def test_in_a_task_that_survived_a_cancellation_a_run_can_time_out() -> None:
    async def handler(event: Event) -> None:
        await asyncio.Event().wait()

    async def survive() -> Outcome:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await run(handler, timeout="1ms")

    task = asyncio.create_task(survive())
    await asyncio.sleep(0)
    task.cancel()
    outcome = await task
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.code == "timeout"


def fail_to_be_read(*_: object) -> Any:
    raise RuntimeError("not even this")


class HostileName(type):
    __name__ = property(fail_to_be_read)


HOSTILE = {
    name: type("Hostile", (Exception,), {name: property(fail_to_be_read)})
    for name in ("__notes__", "__cause__", "__context__", "__traceback__", "__class__")
} | {
    "__getattribute__": type("Hostile", (Exception,), {"__getattribute__": fail_to_be_read}),
    "__str__": type("Hostile", (Exception,), {"__str__": fail_to_be_read}),
    "name": HostileName("Hostile", (Exception,), {}),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_error_that_cannot_be_read_is_a_failed_run_all_the_same(
    kind: str, is_async: bool
) -> None:  # N2
    error = HOSTILE[kind]()

    async def raise_it(event: Event) -> None:
        raise error

    def raise_it_in_a_thread(event: Event) -> None:
        raise error

    handler = raise_it if is_async else raise_it_in_a_thread
    outcome = await executor().run(claim(), registration(handler))
    assert isinstance(outcome, RetryLater)
    assert outcome.failure.error
