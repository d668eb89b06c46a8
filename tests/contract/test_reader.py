"""`Reader`: look-ups, pages and counts while events keep arriving."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackbox.errors import InvalidEvent, Stopped
from ackbox.model import (
    Content,
    Envelope,
    EventFilter,
    EventId,
    EventKey,
    EventRecord,
    Order,
    Page,
    Status,
)
from ackbox.ports import Reader
from support.ledgers.backends import Backend, Fresh
from support.ledgers.events import NOON, envelope, envelopes, record_in
from support.workers.event_runs import DEAD, work

ANY = EventFilter()
BOTH = pytest.mark.parametrize("order", list(Order))


async def pages(
    reader: Reader, where: EventFilter, order: Order, limit: int
) -> AsyncIterator[Page]:
    cursor = None
    while True:
        page = await reader.events(where, order=order, limit=limit, cursor=cursor)
        yield page
        if page.next is None:
            return
        cursor = page.next


async def listed(
    reader: Reader, where: EventFilter = ANY, order: Order = Order.OLDEST, limit: int = 7
) -> list[EventId]:
    return [e.id async for page in pages(reader, where, order, limit) for e in page.items]


def in_order(sent: Sequence[Envelope], order: Order) -> list[EventId]:
    ids = [item.id for item in sent]
    return ids if order is Order.OLDEST else ids[::-1]


async def test_an_event_is_found_by_id_and_by_key(backend: Backend) -> None:  # W13
    sent = envelope("k", b"abc", source="stripe")
    await record_in(backend.store, [sent, envelope("k", source="github")])
    by_id = await backend.reader.event(sent.id)
    assert by_id is not None
    assert (by_id.id, by_id.source, by_id.payload_bytes) == (sent.id, "stripe", 3)
    assert await backend.reader.event(EventKey("stripe", "k")) == by_id


async def test_the_content_of_an_event_is_what_was_sent(backend: Backend) -> None:
    bare, full = envelope("bare", b"\xff\x00"), envelope("full", headers='{"x-shop":"a"}')
    await record_in(backend.store, [bare, full])
    assert await backend.reader.content(bare.id) == Content(b"\xff\x00", None)
    assert await backend.reader.content(full.id) == Content(b'{"n":1}', '{"x-shop":"a"}')


async def test_an_unknown_event_is_none(reader: Reader) -> None:
    assert await reader.event(envelope().id) is None
    assert await reader.event(EventKey("webhooks", "nothing")) is None
    assert await reader.content(envelope().id) is None


async def test_ids_are_found_by_their_prefix(backend: Backend) -> None:
    sent = [envelope(f"key-{n}", at=NOON + timedelta(milliseconds=n)) for n in range(5)]
    await record_in(backend.store, sent)
    reader = backend.reader
    ids = [item.id for item in sent]
    assert await reader.ids_starting(ids[3], limit=9) == [ids[3]]
    assert await reader.ids_starting(ids[3][:14], limit=9) == [ids[3]]
    assert await reader.ids_starting(ids[0][:8], limit=9) == ids
    assert await reader.ids_starting(ids[0][:8], limit=2) == ids[:2]
    for nothing in ("ffff", "%", "_", "*", "é", ids[0] + "0"):
        assert await reader.ids_starting(nothing, limit=9) == []


async def test_a_value_that_no_database_can_hold_is_an_invalid_request(
    reader: Reader,
) -> None:  # F42
    assert await reader.event(EventId("no id at all")) is None
    with pytest.raises(InvalidEvent):
        await reader.event(EventKey("webhooks", "\udfff"))
    with pytest.raises(InvalidEvent):
        await reader.events(ANY, order=Order.OLDEST, limit=5, cursor=2**63)
    assert await reader.event(EventKey("web\0hooks", "key")) is None


@BOTH
async def test_pages_go_through_all_events_by_arrival(backend: Backend, order: Order) -> None:
    sent = envelopes(50)
    await record_in(backend.store, sent)
    for limit in (1, 7, 25, 50, 51):
        assert await listed(backend.reader, order=order, limit=limit) == in_order(sent, order)


@BOTH
async def test_a_page_never_exceeds_its_limit(backend: Backend, order: Order) -> None:
    await record_in(backend.store, envelopes(20))
    sizes = [len(page.items) async for page in pages(backend.reader, ANY, order, 7)]
    assert sizes == [7, 7, 6]


@BOTH
async def test_an_empty_ledger_has_one_empty_page(reader: Reader, order: Order) -> None:
    assert [page async for page in pages(reader, ANY, order, 10)] == [Page([], None)]


@BOTH
@pytest.mark.parametrize("status", list(Status))
async def test_a_status_filter_lists_exactly_that_state(
    backend: Backend, order: Order, status: Status
) -> None:
    sent = envelopes(24)
    await record_in(backend.store, sent)
    for n, item in enumerate(sent):
        await backend.move(item.id, list(Status)[n % 4])
    expected = [item for n, item in enumerate(sent) if list(Status)[n % 4] is status]
    ids = await listed(backend.reader, EventFilter(status=status), order, limit=4)
    assert ids == in_order(expected, order)


FILTERS = {
    "source": (EventFilter(source="b"), {1, 4, 7, 10}),
    "type": (EventFilter(event_type="t.1"), {1, 3, 5, 7, 9, 11}),
    "since is inclusive": (EventFilter(since=NOON + timedelta(seconds=9)), {9, 10, 11}),
    "until is exclusive": (EventFilter(until=NOON + timedelta(seconds=3)), {0, 1, 2}),
    "all at once": (
        EventFilter(
            status=Status.PENDING,
            source="b",
            event_type="t.1",
            since=NOON,
            until=NOON + timedelta(seconds=5),
        ),
        {1},
    ),
    "none match": (EventFilter(source="nobody"), set()),
}


@BOTH
@pytest.mark.parametrize(("where", "expected"), FILTERS.values(), ids=FILTERS.keys())
async def test_a_filter_lists_exactly_the_matching_events(
    backend: Backend, order: Order, where: EventFilter, expected: set[int]
) -> None:
    sent = [
        envelope(
            f"key-{n}", source="abc"[n % 3], event_type=f"t.{n % 2}", at=NOON + timedelta(seconds=n)
        )
        for n in range(12)
    ]
    for item in sent:
        backend.clock.now = item.received_at
        await record_in(backend.store, [item])
    matching = [item for n, item in enumerate(sent) if n in expected]
    assert await listed(backend.reader, where, order, limit=2) == in_order(matching, order)


@BOTH
async def test_paging_neither_misses_nor_repeats_while_events_arrive(  # L13
    backend: Backend, order: Order
) -> None:
    first = envelopes(40, prefix="before")
    await record_in(backend.store, first)
    seen: list[EventId] = []
    arrived: list[Envelope] = []
    async for page in pages(backend.reader, ANY, order, 7):
        seen += [event.id for event in page.items]
        if len(arrived) < 20:
            arrived.append(envelope(f"meanwhile-{len(arrived)}"))
            await record_in(backend.store, arrived[-1:])
    assert len(seen) == len(set(seen))
    if order is Order.OLDEST:
        assert seen == in_order([*first, *arrived], order)[: len(seen)]
        assert len(seen) >= 40
    else:
        assert seen == in_order(first, order)


@BOTH
async def test_paging_continues_after_the_event_at_the_cursor_was_pruned(
    backend: Backend, order: Order
) -> None:
    sent = envelopes(20)
    await record_in(backend.store, sent)
    first = await backend.reader.events(ANY, order=order, limit=5)
    await backend.remove(first.items[-1].id)
    second = await backend.reader.events(ANY, order=order, limit=50, cursor=first.next)
    assert [event.id for event in second.items] == in_order(sent, order)[5:]


async def test_a_repeat_does_not_move_an_event_in_the_list(backend: Backend) -> None:  # L6
    sent = envelopes(3)
    await record_in(backend.store, sent)
    await record_in(backend.store, [envelope("key-0", at=NOON + timedelta(hours=1))])
    assert await listed(backend.reader) == in_order(sent, Order.OLDEST)


async def test_lag_counts_from_the_oldest_pending_event(backend: Backend) -> None:  # L5
    old, young = envelope("old"), envelope("young", at=NOON + timedelta(seconds=30))
    await record_in(backend.store, [old])
    backend.clock.now = young.received_at
    await record_in(backend.store, [young])
    now = NOON + timedelta(minutes=1)
    assert (await backend.reader.stats(backend.clock())).lag(now) == timedelta(seconds=60)
    await backend.move(old.id, Status.COMPLETED)
    assert (await backend.reader.stats(backend.clock())).lag(now) == timedelta(seconds=30)
    await backend.move(young.id, Status.FAILED)
    assert (await backend.reader.stats(backend.clock())).lag(now) == timedelta(0)


async def test_a_clock_set_back_makes_no_negative_lag(backend: Backend) -> None:  # F25
    await record_in(backend.store, [envelope()])
    assert (await backend.reader.stats(backend.clock())).lag(
        NOON - timedelta(hours=1)
    ) == timedelta(0)


KEYS = st.sampled_from([f"key-{n}" for n in range(8)])
CALLS = st.lists(st.tuples(KEYS, st.sampled_from([b"one", b"other"])), max_size=12)
MOVES = st.tuples(st.integers(0, 7), st.sampled_from(Status))
STEPS = st.lists(CALLS | MOVES | st.none(), max_size=12)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
async def test_kept_counts_equal_real_counts_after_any_mix(  # W9
    fresh: Fresh, steps: list[list[tuple[str, bytes]] | tuple[int, Status] | None]
) -> None:
    async with fresh() as backend:
        for step in steps:
            await _take(backend, step)
        rows = await backend.rows()
        stats = await backend.reader.stats(backend.clock())
        assert dict(stats.counts) == {
            status: sum(row["status"] == status for row in rows) for status in Status
        }


async def _take(
    backend: Backend, step: list[tuple[str, bytes]] | tuple[int, Status] | None
) -> None:
    """Take one step: record events, move an event to another state, or make a call that fails."""
    match step:
        case list():
            half = len(step) // 2
            calls = [[envelope(*item) for item in part] for part in (step[:half], step[half:])]
            await asyncio.gather(*[record_in(backend.store, call) for call in calls])
        case (index, status):
            if index < len(rows := await backend.rows()):
                await backend.move(rows[index]["id"], status)
        case None:
            bad = envelope("bad", source_sequence=2**63)
            await asyncio.gather(
                record_in(backend.store, [envelope("with bad"), bad]), return_exceptions=True
            )


async def test_a_reader_sees_an_event_as_soon_as_it_is_acknowledged(backend: Backend) -> None:
    for item in envelopes(20):  # P12
        await record_in(backend.store, [item])
        assert await backend.reader.event(item.id) is not None


async def test_many_concurrent_reads_all_return(backend: Backend) -> None:
    sent = envelopes(30)
    await record_in(backend.store, sent)
    events = await asyncio.gather(*[backend.reader.event(item.id) for item in sent * 5])
    assert all(isinstance(event, EventRecord) for event in events)


async def test_a_closed_reader_raises_and_can_be_closed_again(backend: Backend) -> None:
    await record_in(backend.store, [envelope()])
    assert (await backend.reader.stats(backend.clock())).pending == 1
    await backend.reader.close()
    await backend.reader.close()
    with pytest.raises(Stopped):
        await backend.reader.stats(backend.clock())


async def test_reads_still_queued_when_the_reader_closes_raise_stopped(backend: Backend) -> None:
    await record_in(backend.store, envelopes(200))
    reads = [asyncio.ensure_future(listed(backend.reader, limit=50)) for _ in range(50)]
    await asyncio.sleep(0)
    await backend.reader.close()
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(result, list | Stopped) for result in results), results
    assert any(isinstance(result, Stopped) for result in results)


async def test_a_closed_store_refuses_calls_and_can_be_closed_again(backend: Backend) -> None:
    await record_in(backend.store, [envelope()])
    await backend.store.close()
    await backend.store.close()
    with pytest.raises(Stopped):
        await record_in(backend.store, [envelope("late")])


async def test_closing_makes_earlier_calls_durable(backend: Backend) -> None:  # W5
    calls = [asyncio.ensure_future(record_in(backend.store, [item])) for item in envelopes(50)]
    await asyncio.sleep(0)
    await backend.store.close()
    results = await asyncio.gather(*calls)
    assert all(receipt.kind == "new" for result in results for receipt in result)
    assert len(await listed(backend.reader, limit=100)) == 50


async def test_recorded_events_survive_a_restart(backend: Backend) -> None:
    sent = envelopes(10)
    await record_in(backend.store, sent)
    await backend.close()
    await backend.open()
    assert await listed(backend.reader) == in_order(sent, Order.OLDEST)
    assert (await backend.reader.stats(backend.clock())).pending == 10
    receipts = await record_in(backend.store, [envelope("key-3", sent[3].payload)])
    assert (receipts[0].kind, receipts[0].id) == ("duplicate", sent[3].id)


# N19
@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("order.paid", ["order.paid"]),
        ("order.*", ["order.", "order.paid", "order.sent"]),
        ("order*", ["order", "order.", "order.paid", "order.sent"]),
        ("*", ["Order.paid", "o%_", "order", "order.", "order.paid", "order.sent"]),
        ("o%*", ["o%_"]),
        ("ord%*", []),
        ("order.paid*", ["order.paid"]),
    ],
)
@pytest.mark.parametrize("source_order", [False, True])
async def test_types_are_found_by_the_patterns_of_handlers(
    backend: Backend, pattern: str, matching: list[str], source_order: bool
) -> None:
    types = ["order", "order.", "order.paid", "order.sent", "Order.paid", "o%_"]
    sent = [envelope(kind, event_type=kind, source_sequence=n) for n, kind in enumerate(types)]
    await record_in(backend.store, sent)
    where = EventFilter(source="webhooks", event_type=pattern)
    if source_order:
        items = (await backend.reader.events_of_source(where, limit=50)).items
    else:
        items = (await backend.reader.events(where, order=Order.NEWEST, limit=50)).items
    assert sorted(event.event_type for event in items) == matching


# N5
@pytest.mark.parametrize("source_order", [False, True])
async def test_completed_events_can_be_left_out(backend: Backend, source_order: bool) -> None:
    done, dead, waiting = sent = [envelope(f"{n}", source_sequence=n) for n in range(3)]
    await record_in(backend.store, sent)
    await work(backend.store, [done])
    await work(backend.store, [dead], DEAD)
    where = EventFilter(source="webhooks", skip_completed=True)
    if source_order:
        items = (await backend.reader.events_of_source(where, limit=50)).items
    else:
        items = (await backend.reader.events(where, order=Order.OLDEST, limit=50)).items
    assert [event.id for event in items] == [dead.id, waiting.id]
