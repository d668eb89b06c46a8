"""`inbox.send`, `inbox.send_sync` and `tx.send`: events from the application's own code."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ackbox import Event, Inbox, Receipt, Tx, application_calls
from ackbox.errors import InvalidEvent, InvalidStatement, OutcomeUnknown, Overloaded, Stopped
from ackbox.model import make_sent_event
from ackbox.testing import InboxHarness
from support.time.polling import until

EVENTS = "SELECT source, idempotency_key, event_type, lane, transport, status FROM events"


@pytest.fixture
async def inbox(settings: dict[str, Any]) -> AsyncIterator[Inbox]:
    """An inbox that runs on the event loop of the test, and processes nothing."""
    made = Inbox({**settings, "worker_count": 0})
    async with made.lifespan(None):
        yield made


async def test_an_event_that_was_sent_is_durable_and_has_a_receipt(inbox: Inbox) -> None:
    receipt = await inbox.send("order.placed", {"id": 7}, key="o-7", lane="customer-1")
    assert isinstance(receipt, Receipt)
    assert (receipt.kind, receipt.status) == ("new", "pending")
    (row,) = await inbox.read(EVENTS)
    assert row == {
        "source": "app",
        "idempotency_key": "o-7",
        "event_type": "order.placed",
        "lane": "customer-1",
        "transport": "app",
        "status": "pending",
    }


async def test_a_key_is_one_event_of_its_source(inbox: Inbox) -> None:  # F48
    first = await inbox.send("a", 1, key="k")
    again = await inbox.send("a", 1, key="k")
    changed = await inbox.send("a", 2, key="k")
    elsewhere = await inbox.send("a", 1, key="k", source="billing")
    assert [r.kind for r in (first, again, changed, elsewhere)] == [
        *("new", "duplicate", "conflict", "new")
    ]
    assert first.id == again.id == changed.id != elsewhere.id


async def test_a_bad_argument_is_refused_and_nothing_is_stored(inbox: Inbox) -> None:
    with pytest.raises(InvalidEvent, match="key must have 1 to 255 characters, not 0"):
        await inbox.send("a", key="")
    with pytest.raises(InvalidEvent, match="key must have 1 to 255 characters, not 0"):
        await asyncio.to_thread(inbox.send_sync, "a", key="")
    assert await inbox.read(EVENTS) == []


async def test_any_thread_may_send(inbox: Inbox) -> None:
    sends = [asyncio.to_thread(inbox.send_sync, "a", n, key=f"k-{n}") for n in range(40)]
    receipts = await asyncio.gather(*sends)
    assert {receipt.kind for receipt in receipts} == {"new"}
    assert len(await inbox.read(EVENTS)) == 40


async def test_the_thread_of_the_event_loop_gets_an_error_instead_of_a_deadlock(
    inbox: Inbox,
) -> None:
    with pytest.raises(RuntimeError, match=r"await inbox\.send"):
        inbox.send_sync("a", key="k")


async def test_another_event_loop_is_told_to_use_send_sync(inbox: Inbox) -> None:
    def send() -> None:
        asyncio.run(inbox.send("a", key="k"))

    with pytest.raises(RuntimeError, match=r"inbox\.send_sync"):
        await asyncio.to_thread(send)


async def test_a_thread_does_not_wait_for_ever_for_a_blocked_event_loop(inbox: Inbox) -> None:
    outcome: list[BaseException] = []
    runtime = inbox.asgi().runtime
    sent = make_sent_event("a", None, key="k", source="app", lane=None)

    def send() -> None:
        try:
            application_calls.send_sync(runtime, sent, seconds=0.1)
        except OutcomeUnknown as error:
            outcome.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    sending.join(10)  # this blocks the event loop
    assert "with the same key" in str(outcome[0])


async def test_a_full_queue_refuses_what_is_sent_but_no_follow_up(
    settings: dict[str, Any],
) -> None:  # W7
    inbox = Inbox({**settings, "worker_count": 1, "queue_maxsize": 1})
    go_on, is_full = asyncio.Event(), asyncio.Event()

    @inbox.on("first")
    async def first(event: Event, tx: Tx) -> None:
        for n in range(3):
            tx.send("second", n)
        await inbox.send("waits", key="waits")
        with pytest.raises(Overloaded):
            await inbox.send("refused", key="refused")
        is_full.set()
        await go_on.wait()

    async def completed() -> bool:
        rows = await inbox.read(f"{EVENTS} WHERE status = 'completed'")
        return sorted(row["event_type"] for row in rows) == ["first", *["second"] * 3, "waits"]

    async with inbox.lifespan(None):
        await inbox.send("first", key="first")
        await asyncio.wait_for(is_full.wait(), 10)
        go_on.set()
        await until(completed)


async def test_sending_before_the_start_and_after_the_stop_is_refused(
    settings: dict[str, Any],
) -> None:
    inbox = Inbox(settings)
    with pytest.raises(Stopped):
        await inbox.send("a", key="k")
    async with inbox.lifespan(None):
        pass
    with pytest.raises(Stopped):
        await inbox.send("a", key="k")
    with pytest.raises(Stopped):
        await asyncio.to_thread(inbox.send_sync, "a", key="k")


async def test_the_harness_shows_what_a_handler_sends(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    seen: list[tuple[str, Any]] = []

    @inbox.on("order.placed")
    async def place(event: Event, tx: Tx) -> None:
        tx.send("mail.wanted", {"to": "ann"})

    @inbox.on("mail.wanted", source="app")
    def mail(event: Event) -> None:
        seen.append((event.idempotency_key, event.json()))

    async with InboxHarness(inbox) as box:
        posted = await box.post("order.placed")
        await box.run_one()
        follow_up = (await box.events("pending"))[0]
        assert (follow_up.event_type, follow_up.parent_id) == ("mail.wanted", posted.id)
        await box.run_until_idle()
        await box.replay(posted)
        assert await box.run_until_idle() == 1  # the follow-up has the same key: it is known
    assert seen == [(f"{posted.id}:1", {"to": "ann"})]


async def test_a_bad_argument_of_tx_send_fails_that_run_alone(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)

    @inbox.on("*")
    async def send(event: Event, tx: Tx) -> None:
        tx.send("follow-up", key="" if event.event_type == "bad" else "good")

    async with InboxHarness(inbox) as box:
        bad = await box.post("bad")
        good = await box.post("good")
        with pytest.raises(InvalidEvent, match="key must have 1 to 255 characters"):
            await box.run_one()
        await box.run_one()
        assert (await box.event(bad)).error_code == "InvalidEvent"
        assert (await box.event(good)).status == "completed"
        assert [e.idempotency_key for e in await box.events() if e.source == "app"] == ["good"]


async def test_a_statement_that_fails_sends_nothing(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)

    @inbox.on("first")
    async def send(event: Event, tx: Tx) -> None:
        tx.send("follow-up")
        tx.execute("INSERT INTO nowhere VALUES (1)")

    async with InboxHarness(inbox) as box:
        await box.post("first")
        with pytest.raises(InvalidStatement):
            await box.run_until_idle()
        assert len(await box.events()) == 1
