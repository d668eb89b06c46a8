"""The test harness: deterministic, without waiting, on the real store."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ackbox import Dead, Event, Inbox, Retry, Snooze, Tx
from ackbox.errors import InvalidEvent, InvalidStatement, StartupError, Stopped
from ackbox.testing import Delivery, InboxHarness, MovableClock

ORDERS = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT, version INTEGER)"


def paid(number: int, **more: object) -> Delivery:
    return Delivery(event_type="order.paid", payload={"n": number}, key=f"key-{number}", **more)  # type: ignore[arg-type]


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """An inbox whose own file must stay untouched."""
    return Inbox({"db_path": tmp_path / "real.db"})


@pytest.fixture
def seen(inbox: Inbox) -> list[Event]:
    seen: list[Event] = []

    @inbox.on("order.*")
    async def note(event: Event) -> None:
        seen.append(event)

    return seen


async def test_handlers_run_only_when_the_test_says_so(inbox: Inbox, seen: list[Event]) -> None:
    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid", {"total": 42})
        for _ in range(100):  # turns of the event loop, in which a worker would claim the event
            await asyncio.sleep(0)
        assert (await box.event(posted)).status == "pending"
        assert await box.run_until_idle() == 1
        assert (await box.event(posted.id)).status == "completed"
    assert [event.json() for event in seen] == [{"total": 42}]


async def test_the_users_own_file_is_not_touched(
    inbox: Inbox, seen: list[Event], tmp_path: Path
) -> None:
    async with InboxHarness(inbox) as box:
        await box.post("order.paid")
    assert list(tmp_path.iterdir()) == []


async def test_a_payload_of_bytes_is_sent_as_it_is(inbox: Inbox, seen: list[Event]) -> None:
    async with InboxHarness(inbox) as box:
        await box.post("order.paid", b'{"total":  1.0}')
        await box.run_until_idle()
    assert seen[0].body == b'{"total":  1.0}'


async def test_a_duplicate_runs_once(inbox: Inbox, seen: list[Event]) -> None:
    async with InboxHarness(inbox) as box:
        first = await box.post("order.paid", {"n": 1}, key="a")
        again = await box.post("order.paid", {"n": 1}, key="a")
        other = await box.post("order.paid", {"n": 2}, key="a")
        assert [first.kind, again.kind, other.kind] == ["new", "duplicate", "conflict"]
        assert first.id == again.id == other.id
        assert await box.run_until_idle() == 1
    assert len(seen) == 1


async def test_a_retry_waits_for_the_clock_of_the_test(inbox: Inbox) -> None:
    @inbox.on("order.paid", max_attempts=3)
    async def later(event: Event) -> None:
        if event.attempts == 1:
            raise Retry("not yet", after="10m")

    started = time.monotonic()
    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        assert await box.run_until_idle() == 1
        event = await box.event(posted)
        assert (event.status, event.attempts, event.last_error) == ("pending", 1, "not yet")
        box.clock.advance("9m59s")
        assert await box.run_until_idle() == 0
        box.clock.advance("1s")
        assert await box.run_until_idle() == 1
        assert (await box.event(posted)).status == "completed"
    assert time.monotonic() - started < 10


async def test_a_snoozed_event_waits_for_the_clock_and_spends_no_attempt(inbox: Inbox) -> None:
    @inbox.on("order.paid", max_attempts=1)  # N17
    async def limited(event: Event) -> None:
        if event.run < 4:
            raise Snooze("rate limited", after=30)

    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        assert await box.run_until_idle() == 1
        event = await box.event(posted)
        assert (event.status, event.outcome, event.attempts) == ("pending", "snoozed", 0)
        await box.replay(posted)  # due now
        assert await box.run_until_idle() == 1
        assert await box.run_until_settled() == 2
        assert (await box.event(posted)).status == "completed"


async def test_a_snooze_past_its_greatest_age_spends_an_attempt(inbox: Inbox) -> None:  # N17
    @inbox.on("order.paid", max_attempts=2)
    async def limited(event: Event) -> None:
        raise Snooze("rate limited", after="1d")

    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        assert await box.run_until_settled() == 9  # on days 0 to 6, and then two attempts
        event = await box.event(posted)
        assert (event.status, event.attempts, event.error_code) == ("failed", 2, "Snooze")
        await box.replay(posted)
        await box.run_until_idle()
        assert (await box.event(posted)).outcome == "snoozed"


async def test_delays_are_the_same_each_time(inbox: Inbox) -> None:
    @inbox.on("*", max_attempts=3)
    async def fail(event: Event) -> None:
        raise ValueError("no")

    moments = []
    for _ in range(2):
        async with InboxHarness(inbox) as box:
            posted = await box.post("order.paid")
            assert await box.run_until_settled(raise_errors=False) == 3
            event = await box.event(posted)
            assert (event.status, event.error_code) == ("failed", "ValueError")
            moments.append((posted.id, box.clock()))
    assert moments[0] == moments[1]
    assert moments[0][1] == datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC)


class Odd(Exception):
    pass


@pytest.mark.parametrize("call", ["run_one", "run_until_idle", "run_until_settled"])
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_exception_of_a_handler_is_raised(inbox: Inbox, call: str, is_async: bool) -> None:
    async def waits(event: Event) -> None:  # N2
        raise Odd("no such customer")

    def plain(event: Event) -> None:
        raise Odd("no such customer")

    inbox.on("*", max_attempts=2)(waits if is_async else plain)
    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        with pytest.raises(Odd, match="no such customer") as raised:
            await getattr(box, call)()
        assert raised.traceback[-1].name == ("waits" if is_async else "plain")
        assert (await box.event(posted)).status == "pending"  # settled, as by a worker
        await box.run_until_settled(raise_errors=False)
        assert (await box.event(posted)).status == "failed"


async def test_a_shuffled_run_raises_the_first_error_and_settles_all(inbox: Inbox) -> None:  # N2
    @inbox.on("*", max_attempts=1)
    async def fail(event: Event) -> None:
        raise Odd(event.idempotency_key)

    async with InboxHarness(inbox) as box:
        await box.deliver([paid(n) for n in range(5)])
        with pytest.raises(Odd):
            await box.run_until_idle(shuffle=1)
        assert len(await box.events("failed")) == 5


async def test_an_exception_that_would_end_the_test_run_is_wrapped(inbox: Inbox) -> None:  # N2
    @inbox.on("*")
    def leave(event: Event) -> None:
        raise SystemExit(3)

    async with InboxHarness(inbox) as box:
        await box.post("order.paid")
        with pytest.raises(Exception, match="the handler raised SystemExit"):
            await box.run_one()


async def test_a_statement_that_fails_is_raised(inbox: Inbox) -> None:  # N2
    inbox.schema(ORDERS)

    @inbox.on("*")
    async def write(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO orders (id, colour) VALUES (:id, 'red')", id="o-1")

    async with InboxHarness(inbox) as box:
        await box.post("order.paid")
        with pytest.raises(InvalidStatement, match="colour"):
            await box.run_one()


async def test_the_time_out_of_a_handler_is_raised(inbox: Inbox) -> None:  # N2
    @inbox.on("*", timeout="1ms")
    async def wait(event: Event) -> None:
        await asyncio.Event().wait()

    async with InboxHarness(inbox) as box:
        await box.post("order.paid")
        with pytest.raises(Exception, match="longer than 1ms"):
            await box.run_one()


async def test_an_exception_of_a_handler_before_a_crash_is_raised(inbox: Inbox) -> None:  # N2
    @inbox.on("*")
    async def fail(event: Event) -> None:
        raise Odd("no")

    async with InboxHarness(inbox) as box:
        await box.post("order.paid")
        with pytest.raises(Odd):
            await box.crash_before_settle()
        assert (await box.crash_before_settle(raise_errors=False)).run == 2


async def test_a_dead_letter_is_not_run_again(inbox: Inbox) -> None:
    @inbox.on("order.paid")
    def refuse(event: Event) -> None:
        raise Dead("unknown customer")

    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        assert await box.run_until_settled() == 1
        box.clock.advance("365d")
        assert await box.run_until_idle() == 0
        assert [event.id for event in await box.events("failed")] == [posted.id]
        assert (await box.event(posted)).last_error == "unknown customer"


async def test_a_replayed_dead_letter_runs_again_with_all_its_attempts(inbox: Inbox) -> None:  # L11
    broken = [True]

    @inbox.on("order.paid", max_attempts=2)
    async def refuse(event: Event) -> None:
        if broken:
            raise ValueError("not mended yet")

    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        await box.run_until_settled(raise_errors=False)
        broken.clear()
        replayed = await box.replay(posted)
        assert (replayed.status, replayed.attempts, replayed.run) == ("pending", 0, 2)
        await box.run_until_idle()
        event = await box.event(posted)
        assert (event.status, event.attempts, event.run) == ("completed", 1, 3)


async def test_an_event_without_a_handler_is_ignored_or_parked(tmp_path: Path) -> None:
    for choice, expected in (
        ("complete", ("completed", "ignored")),
        ("park", ("pending", "parked")),
    ):
        inbox = Inbox({"db_path": tmp_path / "x.db", "unhandled": choice})
        async with InboxHarness(inbox) as box:
            posted = await box.post("order.paid")
            await box.run_until_settled()
            event = await box.event(posted)
            assert (event.status, event.outcome) == expected


async def test_effects_happen_exactly_once_whatever_crashes(inbox: Inbox) -> None:
    inbox.schema(ORDERS)
    calls: list[int] = []

    @inbox.on("order.paid")
    async def keep(event: Event, tx: Tx) -> None:
        calls.append(event.run)
        tx.execute("INSERT INTO orders (id, version) VALUES (:id, :run)", id="a", run=event.run)

    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        lost = await box.crash_after_claim()
        assert (lost.id, lost.status, lost.attempts, lost.run) == (posted.id, "processing", 1, 1)
        assert calls == []
        lost = await box.crash_before_settle()
        assert (lost.run, calls) == (2, [2])
        assert await box.read("SELECT * FROM orders") == []
        assert await box.run_until_idle() == 1
        assert calls == [2, 3]
        assert await box.read("SELECT id, version FROM orders") == [{"id": "a", "version": 3}]
        assert (await box.event(posted)).status == "completed"
        await box.restart()
        assert await box.run_until_idle() == 0


async def test_an_event_that_always_crashes_ends_as_a_dead_letter(inbox: Inbox) -> None:  # F23
    @inbox.on("order.paid", max_attempts=2)
    async def never(event: Event) -> None:
        raise AssertionError("it must not run a fifth time")

    async with InboxHarness(inbox) as box:
        posted = await box.post("order.paid")
        for _ in range(4):  # two that give the attempt back, then two as a suspect (S9)
            await box.crash_after_claim()
        await box.run_until_settled()
        event = await box.event(posted)
        assert (event.status, event.error_code) == ("failed", "crashed")


async def test_deliveries_may_repeat_and_arrive_out_of_order(
    inbox: Inbox, seen: list[Event]
) -> None:
    orders = set()
    for seed in range(8):
        seen.clear()
        async with InboxHarness(inbox) as box:
            receipts = await box.deliver([paid(n) for n in range(4)], times=2, shuffle=seed)
            assert [receipt.kind for receipt in receipts] == ["new"] * 4
            assert await box.run_until_idle() == 4
        orders.add(tuple(event.json()["n"] for event in seen))
    assert len(orders) > 3


async def test_a_shuffled_run_is_the_same_for_the_same_seed(
    inbox: Inbox, seen: list[Event]
) -> None:
    async def order(seed: int) -> list[int]:
        seen.clear()
        async with InboxHarness(inbox) as box:
            await box.deliver([paid(n) for n in range(6)])
            await box.run_until_idle(shuffle=seed)
        return [event.json()["n"] for event in seen]

    assert await order(1) == await order(1)
    assert len({tuple(await order(seed)) for seed in range(6)}) > 1


async def test_a_lane_keeps_its_order_however_runs_are_shuffled(
    inbox: Inbox, seen: list[Event]
) -> None:
    lanes = [paid(n, lane="ab"[n % 2]) for n in range(8)]
    for seed in range(5):
        seen.clear()
        async with InboxHarness(inbox) as box:
            await box.deliver(lanes)
            assert await box.run_until_idle(shuffle=seed) == 8
        for lane, numbers in (("a", [0, 2, 4, 6]), ("b", [1, 3, 5, 7])):
            assert [event.json()["n"] for event in seen if event.lane == lane] == numbers


async def test_run_one_runs_one_event(inbox: Inbox, seen: list[Event]) -> None:
    async with InboxHarness(inbox) as box:
        await box.deliver([paid(1), paid(2)])
        first = await box.run_one()
        assert first is not None
        assert (first.idempotency_key, first.status) == ("key-1", "completed")
        await box.run_one()
        assert await box.run_one() is None
    assert len(seen) == 2


async def test_a_handler_can_read_through_its_own_inbox(inbox: Inbox) -> None:
    inbox.schema(ORDERS)
    inbox.schema("INSERT OR IGNORE INTO orders (id, status) VALUES ('a', 'open')")
    rows = []

    @inbox.on("order.paid")
    async def read(event: Event) -> None:
        rows.extend(await inbox.read("SELECT status FROM orders WHERE id = :id", id="a"))

    async with InboxHarness(inbox) as box:
        await box.post("order.paid")
        await box.run_until_idle()
    assert rows == [{"status": "open"}]


async def test_an_event_that_the_http_route_refuses_is_refused(inbox: Inbox) -> None:
    async with InboxHarness(inbox) as box:
        with pytest.raises(InvalidEvent, match="idempotency_key"):
            await box.post("order.paid", key="")
        with pytest.raises(LookupError, match="No event is due"):
            await box.crash_after_claim()
        with pytest.raises(LookupError, match="no event"):
            await box.event("nobody")


async def test_a_harness_outside_its_block_is_refused(inbox: Inbox) -> None:
    box = InboxHarness(inbox)
    with pytest.raises(Stopped, match="async with"):
        await box.post("order.paid")


async def test_an_inbox_is_in_one_harness_at_a_time(inbox: Inbox) -> None:
    async with InboxHarness(inbox):
        with pytest.raises(StartupError, match="already running"):
            async with InboxHarness(inbox):
                pass
    async with InboxHarness(inbox) as box:
        assert await box.run_until_idle() == 0


async def test_many_events_are_all_seen(inbox: Inbox, seen: list[Event]) -> None:
    async with InboxHarness(inbox) as box:
        await box.deliver([paid(n) for n in range(250)])
        assert len(await box.events()) == 250
        assert await box.run_until_idle(shuffle=0) == 250
        assert len(await box.events("completed")) == 250


def test_the_clock_moves_only_forward_and_only_when_moved() -> None:
    clock = MovableClock(datetime(2026, 5, 1, tzinfo=UTC))
    assert clock() == clock() == datetime(2026, 5, 1, tzinfo=UTC)
    assert clock.advance("1h30m") == datetime(2026, 5, 1, 1, 30, tzinfo=UTC)
    assert clock.move_to(datetime(2026, 4, 1, tzinfo=UTC)) == clock()
