"""Ingest: its bounds, its retries, and what each caller of a batch gets.

The ledger follows the script of a test; clock, sleep and randomness are passed in.
"""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackbox.byte_buffer import Reservation
from ackbox.errors import (
    ConnectionLost,
    InvalidEvent,
    LedgerCorrupt,
    NotStored,
    OutcomeUnknown,
    Overloaded,
    SettingError,
    Stopped,
    StorageFull,
    StoreError,
    Unavailable,
)
from ackbox.ingest import Ingest, Limits
from ackbox.model import Envelope, Receipt, ReceiptKind, Status, Submission
from ackbox.telemetry import Recorded, RecordFailed, Refused
from support.ledgers.events import accept, envelope, envelopes
from support.ledgers.facts import Facts
from support.time.supervisor import supervisor

NEW, DUPLICATE = ReceiptKind.NEW, ReceiptKind.DUPLICATE
DOWN = Unavailable("The database is down.")

Step = Exception | asyncio.Event | None
"""The reaction of the ledger to a call: raise this error, wait for this event, or store (None)."""


class ScriptedLedger:
    def __init__(self, *script: Step) -> None:
        self.unavailable_reason: str | None = None
        self.script = list(script)
        self.calls: list[list[Envelope]] = []
        self.called = asyncio.Event()
        self.stored: dict[str, Envelope] = {}
        self.poison: set[str] = set()
        self.default: Step = None

    async def record(self, submissions: Sequence[Submission]) -> list[Receipt]:
        envelopes = [sent for submission in submissions for sent in submission.envelopes]
        self.calls.append(envelopes)
        self.called.set()
        step = self.script.pop(0) if self.script else self.default
        if isinstance(step, asyncio.Event):
            await step.wait()
        elif step is not None:
            raise step
        if self.poison & {sent.idempotency_key for sent in envelopes}:
            raise InvalidEvent("This can never be stored.")
        return [self._store(sent) for sent in envelopes]

    def _store(self, sent: Envelope) -> Receipt:
        kept = self.stored.setdefault(sent.idempotency_key, sent)
        kind = NEW if kept is sent else DUPLICATE
        return Receipt(kind, kept.id, Status.PENDING, kept.received_at)

    async def cursor(self, source: str) -> str | None:
        return None

    async def prove_writable(self) -> None: ...


class Time:
    """A clock that moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def limits(**changes: float) -> Limits:
    defaults = {"buffer_events": 100, "buffer_bytes": 1000, "queue_events": 1000, "timeout": 5.0}
    return Limits(**(defaults | changes))  # type: ignore[arg-type]


@asynccontextmanager
async def ingesting(
    ledger: ScriptedLedger, *, time: Time | None = None, backlog: int = 0, **changes: float
) -> AsyncIterator[tuple[Ingest, Facts]]:
    facts, time = Facts(), time or Time()
    ingest = Ingest(
        ledger,
        limits(**changes),
        backlog=backlog,
        observe=facts,
        uniform=lambda low, high: high,
        sleep=time.sleep,
        monotonic=time.monotonic,
    )
    ingest.start(supervisor(facts))
    yield ingest, facts
    await ingest.close()
    assert ingest.buffered == (0, 0)


async def accept_many(ingest: Ingest, sent: Sequence[Envelope]) -> list[Receipt]:
    return await ingest.submit(Submission(sent))


async def submit(ingest: Ingest, sent: Sequence[Envelope]) -> list[asyncio.Task[Receipt]]:
    calls = [asyncio.create_task(accept(ingest, envelope)) for envelope in sent]
    await asyncio.sleep(0)
    return calls


async def test_an_accepted_event_gets_its_receipt() -> None:
    ledger, sent = ScriptedLedger(), envelope()
    async with ingesting(ledger) as (ingest, facts):
        receipt = await accept(ingest, sent)
        again = await accept(ingest, envelope())
    assert (receipt.kind, receipt.id) == (NEW, sent.id)
    assert (again.kind, again.id) == (DUPLICATE, sent.id)
    assert [fact.receipts for fact in facts.of(Recorded)] == [[receipt], [again]]


async def test_events_that_arrive_during_a_commit_are_the_next_batch() -> None:  # group commit
    gate = asyncio.Event()
    ledger = ScriptedLedger(gate)
    async with ingesting(ledger) as (ingest, _):
        first = await submit(ingest, [envelope("first")])
        await ledger.called.wait()
        others = await submit(ingest, envelopes(50))
        gate.set()
        receipts = await asyncio.gather(*first, *others)
    assert [len(call) for call in ledger.calls] == [1, 50]
    assert [sent.id for call in ledger.calls for sent in call] == [r.id for r in receipts]


async def test_a_submission_leaves_the_memory_when_it_is_durable() -> None:  # F45
    async with ingesting(ScriptedLedger()) as (ingest, _):
        waiter = ingest.submit(Submission([envelope()]))
        await asyncio.wait([waiter])
        kept = weakref.ref(waiter)
        del waiter
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        assert kept() is None


async def test_each_caller_gets_its_own_receipts() -> None:
    async with ingesting(ScriptedLedger()) as (ingest, _):
        single, many, none = envelope("one"), envelopes(3), list[Envelope]()
        results = await asyncio.gather(
            accept_many(ingest, many), accept_many(ingest, none), accept_many(ingest, [single])
        )
    assert [[receipt.id for receipt in result] for result in results] == [
        [sent.id for sent in many],
        [],
        [single.id],
    ]


async def test_a_batch_is_bounded_in_events_and_in_bytes() -> None:  # F45
    gate = asyncio.Event()
    ledger = ScriptedLedger(gate)
    mebibyte = b"x" * 1024 * 1024
    async with ingesting(ledger, buffer_events=5000, queue_events=9000) as (ingest, _):
        first = await submit(ingest, [envelope("first")])
        await ledger.called.wait()
        large = await submit(ingest, [envelope(f"large-{n}", mebibyte) for n in range(20)])
        many = await submit(ingest, envelopes(2500))
        gate.set()
        await asyncio.gather(*first, *large, *many)
    for call in ledger.calls:
        assert len(call) <= 1000
        assert sum(len(sent.payload) for sent in call[:-1]) < 8 * 1024 * 1024
    assert sum(len(call) for call in ledger.calls) == 2521


async def test_a_failing_ledger_is_retried_with_the_delays_of_l9() -> None:  # L9
    ledger, time = ScriptedLedger(*[DOWN] * 8), Time()
    async with ingesting(ledger, time=time, timeout=60.0) as (ingest, facts):
        receipt = await accept(ingest, envelope())
    assert receipt.kind is NEW
    assert time.slept[:8] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.0]
    assert [fact.retrying for fact in facts.of(RecordFailed)] == [True] * 8


@pytest.mark.parametrize("error", [DOWN, StorageFull("No room.", retry_after=5)])
async def test_a_caller_of_a_failing_ledger_waits_at_most_for_the_timeout(
    error: Unavailable,
) -> None:  # L9
    ledger, time = ScriptedLedger(), Time()
    ledger.default = error
    async with ingesting(ledger, time=time) as (ingest, facts):
        began = time.now
        with pytest.raises(Unavailable, match="in time") as caught:
            await accept(ingest, envelope())
        assert time.now - began == pytest.approx(5.0, abs=0.01)
        assert caught.value.retry_after == 5
    assert [fact.reason for fact in facts.of(Refused)] == ["timeout"]


async def test_a_failing_ledger_is_not_called_more_often_near_the_timeout() -> None:  # F9, L9
    ledger, time = ScriptedLedger(), Time()
    ledger.default = DOWN
    async with ingesting(ledger, time=time) as (ingest, _):
        with pytest.raises(Unavailable):
            await accept(ingest, envelope())
        for _ in range(50):
            await asyncio.sleep(0)
    assert len(ledger.calls) <= 8


async def test_a_caller_of_a_hanging_ledger_waits_at_most_for_the_timeout() -> None:  # F29
    ledger, time = ScriptedLedger(), Time()
    ledger.default = asyncio.Event()
    async with ingesting(ledger, time=time) as (ingest, facts):
        calls = await submit(ingest, envelopes(3))
        await ledger.called.wait()
        calls += await submit(ingest, [envelope("queued behind")])
        time.now += 4.9
        ingest.expire_waiters()
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        time.now += 0.2
        ingest.expire_waiters()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [OutcomeUnknown] * 3 + [Unavailable]
    assert [fact.reason for fact in facts.of(Refused)] == ["timeout"] * 4


async def test_the_timeout_needs_no_other_event() -> None:
    """The only test on the real clock: it shows that the check of the deadlines is scheduled."""
    ledger = ScriptedLedger()
    ledger.default = asyncio.Event()
    ingest = Ingest(
        ledger, limits(timeout=0.01), backlog=0, observe=Facts(), uniform=lambda low, high: high
    )
    ingest.start(supervisor())
    with pytest.raises(OutcomeUnknown, match="in time"):
        await asyncio.wait_for(accept(ingest, envelope()), 5)
    await ingest.close()


async def test_an_unknown_outcome_is_reported_and_not_retried() -> None:  # F8
    ledger = ScriptedLedger(OutcomeUnknown("The commit failed."))
    async with ingesting(ledger) as (ingest, facts):
        calls = await submit(ingest, envelopes(3))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [OutcomeUnknown] * 3
        assert len(ledger.calls) == 1
        assert ingest.failing
        assert (await accept(ingest, envelope("after"))).kind is NEW
        assert not ingest.failing
    assert [(fact.events, fact.retrying) for fact in facts.of(RecordFailed)] == [(3, False)]


async def test_a_lost_connection_is_retried() -> None:
    ledger, time = ScriptedLedger(ConnectionLost("The server is gone.")), Time()
    async with ingesting(ledger, time=time) as (ingest, facts):
        assert (await accept(ingest, envelope())).kind is NEW
    assert [fact.retrying for fact in facts.of(RecordFailed)] == [True]


async def test_after_a_lost_connection_nobody_knows_whether_the_event_is_stored() -> None:
    ledger, time = ScriptedLedger(DOWN, ConnectionLost("The server is gone.")), Time()
    ledger.default = DOWN
    async with ingesting(ledger, time=time) as (ingest, _):
        with pytest.raises(OutcomeUnknown, match="in time"):
            await accept(ingest, envelope())


@pytest.mark.parametrize(
    "later",
    [StoreError("A right is missing."), SettingError("Wrong password."), Stopped("Closed.")],
    ids=lambda error: type(error).__name__,
)
async def test_no_later_error_tells_that_an_event_of_a_lost_connection_is_not_stored(
    later: Exception,
) -> None:
    ledger = ScriptedLedger(ConnectionLost("The server is gone."), later)
    async with ingesting(ledger) as (ingest, _):
        calls = await submit(ingest, envelopes(2))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [OutcomeUnknown] * 2


async def test_an_event_of_a_lost_connection_stays_unknown_when_a_bad_event_is_isolated() -> None:
    ledger = ScriptedLedger(ConnectionLost("x"), InvalidEvent("bad"), Stopped("Closed."))
    ledger.poison = {"key-1"}
    async with ingesting(ledger) as (ingest, _):
        calls = await submit(ingest, envelopes(2))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [OutcomeUnknown, InvalidEvent]


async def test_a_retry_that_hangs_may_store_the_event() -> None:
    ledger, time = ScriptedLedger(DOWN), Time()
    ledger.default = asyncio.Event()
    async with ingesting(ledger, time=time) as (ingest, _):
        (call,) = await submit(ingest, [envelope()])
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(ledger.calls) == 2
        time.now += 5.1
        ingest.expire_waiters()
        with pytest.raises(OutcomeUnknown, match="in time"):
            await call


async def test_a_stopped_ledger_is_not_retried() -> None:  # F29
    ledger, time = ScriptedLedger(), Time()
    ledger.default = Stopped("The writer stopped.")
    async with ingesting(ledger, time=time) as (ingest, _):
        began = time.now
        with pytest.raises(Stopped):
            await accept(ingest, envelope())
        assert time.now - began < 1


@pytest.mark.parametrize(
    ("error", "seen"),
    [(LedgerCorrupt("Damaged."), Unavailable), (ZeroDivisionError("a bug"), OutcomeUnknown)],
)
async def test_an_unexpected_error_fails_its_batch_and_the_next_batch_is_stored(
    error: Exception, seen: type[Exception]
) -> None:  # F29
    ledger = ScriptedLedger(error)
    async with ingesting(ledger) as (ingest, facts):
        calls = await submit(ingest, envelopes(3))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [seen] * 3
        assert (await accept(ingest, envelope("after"))).kind is NEW
    assert [fact.events for fact in facts.of(RecordFailed)] == [3]


async def test_one_bad_event_fails_alone() -> None:  # F28
    gate = asyncio.Event()
    ledger = ScriptedLedger(gate)
    ledger.poison = {"key-31"}
    async with ingesting(ledger) as (ingest, facts):
        first = await submit(ingest, [envelope("first")])
        await ledger.called.wait()
        calls = await submit(ingest, envelopes(64))
        gate.set()
        results = await asyncio.gather(*first, *calls, return_exceptions=True)
        assert isinstance(results.pop(32), InvalidEvent)
        assert all(isinstance(result, Receipt) and result.kind is NEW for result in results)
        assert not ingest.failing
    assert [fact.events for fact in facts.of(RecordFailed)] == [1]


async def test_an_event_whose_caller_left_while_a_bad_event_is_isolated_is_not_stored() -> None:
    gate = asyncio.Event()
    ledger = ScriptedLedger(InvalidEvent("bad"), gate)  # F27, F28
    async with ingesting(ledger) as (ingest, _):
        calls = await submit(ingest, envelopes(3))
        while len(ledger.calls) < 2:
            ledger.called.clear()
            await ledger.called.wait()
        calls[1].cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
    assert list(ledger.stored) == ["key-0", "key-2"]


async def test_a_ledger_that_fails_while_a_bad_event_is_isolated_is_retried() -> None:
    ledger = ScriptedLedger(InvalidEvent("bad"), DOWN, DOWN)  # F28, L9
    ledger.poison = {"key-1"}
    async with ingesting(ledger) as (ingest, _):
        calls = await submit(ingest, envelopes(3))
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [Receipt, InvalidEvent, Receipt]


async def test_an_event_that_was_isolated_before_a_failure_is_counted_once() -> None:  # F28
    ledger = ScriptedLedger(InvalidEvent("bad"), None, ZeroDivisionError("a bug"))
    async with ingesting(ledger) as (ingest, _):
        calls = await submit(ingest, envelopes(3))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, Receipt) for result in results] == [True, False, False]
        assert ingest.buffered == (0, 0)


async def test_the_buffer_is_bounded_in_number() -> None:  # W7, L2
    gate = asyncio.Event()
    ledger = ScriptedLedger(gate)
    async with ingesting(ledger, buffer_events=5) as (ingest, facts):
        calls = await submit(ingest, envelopes(5))
        assert ingest.capacity == 0
        with pytest.raises(Overloaded):
            await accept(ingest, envelope("too many"))
        with pytest.raises(Overloaded):
            await accept_many(ingest, envelopes(2))
        gate.set()
        await asyncio.gather(*calls)
        assert ingest.capacity == 5
        assert (await accept(ingest, envelope("after"))).kind is NEW
    assert [fact.reason for fact in facts.of(Refused)] == ["buffer_events"] * 2


async def test_a_submission_larger_than_the_queue_is_admitted_if_nothing_waits() -> None:  # W7
    async with ingesting(ScriptedLedger(), queue_events=5) as (ingest, facts):
        assert len(await ingest.submit(Submission(envelopes(8)))) == 8
        for events in (1, 8):
            with pytest.raises(Overloaded, match="8 events wait already"):
                await ingest.submit(Submission(envelopes(events)))
        ingest.note_claimed(8)
        assert len(await ingest.submit(Submission(envelopes(8, prefix="next")))) == 8
    assert [fact.reason for fact in facts.of(Refused)] == ["queue"] * 2


async def test_a_submission_larger_than_the_buffer_is_admitted_alone() -> None:  # W7
    gate = asyncio.Event()
    async with ingesting(ScriptedLedger(gate), buffer_events=5) as (ingest, facts):
        large = ingest.submit(Submission(envelopes(8)))
        assert ingest.capacity == 0
        for events in (1, 8):
            with pytest.raises(Overloaded):
                await ingest.submit(Submission(envelopes(events)))
        gate.set()
        assert len(await large) == 8
    assert [fact.reason for fact in facts.of(Refused)] == ["buffer_events"] * 2


async def test_the_buffer_is_bounded_in_bytes() -> None:  # L2, F45
    async with ingesting(ScriptedLedger(), buffer_bytes=1000) as (ingest, facts):
        first, second, large, small = (Reservation(ingest.bytes) for _ in range(4))
        with first, second:
            first.hold(600)
            with pytest.raises(Overloaded):
                second.hold(401)
            second.hold(400)
            assert ingest.buffered == (0, 1000)
        with large, small:
            large.hold(5000)  # a body larger than the buffer gets all of it
            with pytest.raises(Overloaded):
                small.hold(1)
    assert [fact.reason for fact in facts.of(Refused)] == ["buffer_bytes"] * 2


async def test_the_queue_limit_counts_admitted_and_pending_events() -> None:  # W7
    gate = asyncio.Event()
    ledger = ScriptedLedger(gate)
    async with ingesting(ledger, backlog=7, queue_events=10) as (ingest, facts):
        calls = await submit(ingest, envelopes(3))
        assert (ingest.waiting, ingest.capacity) == (10, 0)
        with pytest.raises(Overloaded, match="10 events wait"):
            await accept(ingest, envelope("too many"))
        gate.set()
        await asyncio.gather(*calls)
        assert ingest.waiting == 10  # durable now, and still waiting
        with pytest.raises(Overloaded):
            await accept(ingest, envelope("too many"))
    assert [fact.reason for fact in facts.of(Refused)] == ["queue"] * 2


async def test_a_duplicate_does_not_make_the_queue_longer() -> None:  # W7
    async with ingesting(ScriptedLedger(), queue_events=10) as (ingest, _):
        for _ in range(5):
            await accept(ingest, envelope())
        assert ingest.waiting == 1


async def test_an_unavailable_ledger_is_not_called() -> None:  # F9
    ledger = ScriptedLedger()
    ledger.unavailable_reason = "The disk is nearly full."
    async with ingesting(ledger) as (ingest, facts):
        with pytest.raises(Unavailable, match="nearly full") as caught:
            await accept(ingest, envelope())
        assert caught.value.retry_after == 5
        assert ingest.failing
        ledger.unavailable_reason = None
        assert (await accept(ingest, envelope())).kind is NEW
    assert len(ledger.calls) == 1
    assert [fact.reason for fact in facts.of(Refused)] == ["unavailable"]


async def test_failures_past_the_budget_are_critical_until_a_write_succeeds() -> None:  # L9
    ledger, time = ScriptedLedger(), Time()
    ledger.default = DOWN
    async with ingesting(ledger, time=time) as (ingest, _):
        assert not ingest.failing
        for n in range(13):
            with pytest.raises(Unavailable):
                await accept(ingest, envelope(f"refused-{n}"))
            assert ingest.failing
            assert ingest.critical == (n == 12)
        ledger.default = None
        await accept(ingest, envelope())
        assert (ingest.failing, ingest.critical) == (False, False)


async def test_a_ledger_unavailable_past_the_budget_is_critical_too() -> None:  # F9, L9
    ledger, time = ScriptedLedger(), Time()
    ledger.unavailable_reason = "The disk is nearly full."
    async with ingesting(ledger, time=time) as (ingest, _):
        with pytest.raises(Unavailable):
            await accept(ingest, envelope())
        time.now += 61
        assert ingest.critical


async def test_a_successful_probe_ends_the_failure_without_a_sender() -> None:  # L9
    ledger, time = ScriptedLedger(), Time()
    ledger.default = DOWN
    async with ingesting(ledger, time=time) as (ingest, _):
        with pytest.raises(Unavailable):
            await accept(ingest, envelope())
        time.now += 61
        assert ingest.critical
        ingest.note_writable()
        assert not ingest.failing


async def test_a_cancelled_caller_does_not_affect_others() -> None:  # F27
    gate = asyncio.Event()
    ledger = ScriptedLedger(gate)
    async with ingesting(ledger) as (ingest, _):
        calls = await submit(ingest, envelopes(6))
        await ledger.called.wait()
        queued = await submit(ingest, envelopes(6, prefix="queued"))
        for call in [*calls[::2], *queued[::2]]:
            call.cancel()
        await asyncio.sleep(0)
        gate.set()
        results = await asyncio.gather(*calls, *queued, return_exceptions=True)
        cancelled = [isinstance(result, asyncio.CancelledError) for result in results]
        assert cancelled == [True, False] * 6
        assert ingest.waiting == 9  # six of the first batch, three of the second
    assert [len(call) for call in ledger.calls] == [6, 3]


async def test_closing_makes_admitted_events_durable_and_refuses_new_ones() -> None:  # W5
    gate = asyncio.Event()
    ledger = ScriptedLedger(gate)
    async with ingesting(ledger) as (ingest, _):
        calls = await submit(ingest, [envelope("first")])
        await ledger.called.wait()
        calls += await submit(ingest, envelopes(20))
        closing = asyncio.create_task(ingest.close())
        await asyncio.sleep(0)
        with pytest.raises(Stopped, match="shutting down"):
            await accept(ingest, envelope("late"))
        gate.set()
        receipts = await asyncio.gather(*calls)
        await closing
    assert [receipt.kind for receipt in receipts] == [NEW] * 21


async def test_closing_waits_for_a_hanging_ledger_at_most_for_the_timeout() -> None:
    ledger, time = ScriptedLedger(), Time()  # W5
    ledger.default = asyncio.Event()
    async with ingesting(ledger, time=time) as (ingest, _):
        calls = await submit(ingest, [envelope("in progress")])
        await ledger.called.wait()
        calls += await submit(ingest, [envelope("queued")])
        began = time.now
        await asyncio.wait_for(ingest.close(), 5)
        assert time.now - began == pytest.approx(5.0, abs=0.1)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [OutcomeUnknown, Stopped]


async def test_closing_twice_is_closing_once() -> None:
    ledger = ScriptedLedger()
    async with ingesting(ledger) as (ingest, _):
        await accept(ingest, envelope())
        await ingest.close()
    assert len(ledger.calls) == 1


async def test_several_batches_may_be_in_flight() -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    ledger = ScriptedLedger(*gates)
    async with ingesting(ledger, in_flight=2) as (ingest, _):
        first = await submit(ingest, [envelope("first")])
        await asyncio.sleep(0)
        second = await submit(ingest, [envelope("second")])
        await asyncio.sleep(0)
        assert [len(call) for call in ledger.calls] == [1, 1]
        gates[1].set()
        assert (await second[0]).kind is NEW
        assert not first[0].done()
        gates[0].set()
        await first[0]


ERRORS: list[Callable[[], Step]] = [
    lambda: None,
    lambda: None,
    lambda: DOWN,
    lambda: OutcomeUnknown("unknown"),
    lambda: InvalidEvent("bad"),
    lambda: Stopped("stopped"),
    lambda: LedgerCorrupt("damaged"),
    lambda: ZeroDivisionError("a bug"),
]
CALLS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(script=st.lists(st.sampled_from(ERRORS), max_size=12), calls=CALLS, in_flight=st.just(1))
async def test_after_any_mix_every_call_ends_and_the_buffer_is_empty(  # F29
    script: list[Callable[[], Step]], calls: list[tuple[int, int, bool, int]], in_flight: int
) -> None:
    """Calls of several sizes and keys, some cancelled, with a pause after some of them."""
    ledger, time = ScriptedLedger(*[step() for step in script]), Time()
    ledger.poison = {"key-9"}
    async with ingesting(
        ledger, time=time, buffer_events=12, queue_events=60, in_flight=in_flight
    ) as (ingest, facts):
        tasks: list[asyncio.Task[list[Receipt]]] = []
        for size, key, cancelled, pause in calls:
            sent = [envelope(f"key-{key + n}", b"x") for n in range(size)]
            tasks.append(asyncio.create_task(accept_many(ingest, sent)))
            for _ in range(pause):
                await asyncio.sleep(0)
            if cancelled:
                tasks[-1].cancel()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        await asyncio.wait_for(ingest.close(), 5)
        assert ingest.buffered == (0, 0)
    for result, (size, *_) in zip(results, calls, strict=True):
        expected = (NotStored, OutcomeUnknown, asyncio.CancelledError)
        assert isinstance(result, expected) or len(result) == size  # type: ignore[arg-type]
    new = sum(r.kind is NEW for fact in facts.of(Recorded) for r in fact.receipts)
    assert new == len(ledger.stored) == ingest.waiting


async def test_waiting_times_are_reported_for_each_event_in_order() -> None:  # W15
    gate, time = asyncio.Event(), Time()
    ledger = ScriptedLedger(gate)
    async with ingesting(ledger, time=time) as (ingest, facts):
        calls = await submit(ingest, [envelope("first")])
        await ledger.called.wait()
        for n in range(3):
            time.now += 1
            calls += await submit(ingest, [envelope(f"later-{n}")])
        gate.set()
        await asyncio.gather(*calls)
    first, later = facts.of(Recorded)
    assert list(first.seconds) == [3.0]
    assert list(later.seconds) == [2.0, 1.0, 0.0]
    assert all(older >= younger for older, younger in pairwise(later.seconds))
