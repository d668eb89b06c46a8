"""Deliveries with several events: the delivery is recorded as split, its items run as events."""

import asyncio

from ackbox.model import (
    Content,
    Envelope,
    EventFilter,
    Order,
    OutcomeName,
    Receipt,
    ReceiptKind,
    ReplayKind,
    Status,
)
from ackbox.ports import Reader, Store
from support.ledgers.backends import Backend, Row, row
from support.ledgers.events import NOON, envelope, record_in
from support.workers.queue_worker import QueueWorker

NEW, DUPLICATE, CONFLICT = ReceiptKind.NEW, ReceiptKind.DUPLICATE, ReceiptKind.CONFLICT
BODY = b'{"items":[1,2]}'


def delivery_of(*items: str, key: str = "delivery", body: bytes = BODY) -> list[Envelope]:
    """Return a delivery, and an event for each of its items."""
    whole = envelope(key, body, outcome=OutcomeName.SPLIT)
    return [whole, *(envelope(item, item.encode(), parent_id=whole.id) for item in items)]


def kinds(receipts: list[Receipt]) -> list[ReceiptKind]:
    return [receipt.kind for receipt in receipts]


async def test_a_delivery_is_completed_as_split_and_its_items_are_pending(backend: Backend) -> None:
    whole, first, second = delivery_of("a", "b")
    receipts = await record_in(backend.store, [whole, first, second])
    assert receipts == [
        Receipt(NEW, whole.id, Status.COMPLETED, NOON),
        Receipt(NEW, first.id, Status.PENDING, NOON),
        Receipt(NEW, second.id, Status.PENDING, NOON),
    ]
    stored = await row(backend, "delivery")
    assert [stored[name] for name in ("status", "outcome", "run", "claimable_at")] == [
        *("completed", "split", 0, None)
    ]
    assert stored["processed_at"] == stored["created_at"]
    assert [(await row(backend, key))["parent_id"] for key in "ab"] == [whole.id, whole.id]


async def test_a_delivery_keeps_its_exact_bytes(store: Store, reader: Reader) -> None:
    whole, *items = delivery_of("a", body=b"\xff\x00not JSON")
    await record_in(store, [whole, *items])
    assert await reader.content(whole.id) == Content(b"\xff\x00not JSON", None)


async def test_a_delivery_is_never_claimed(backend: Backend) -> None:
    await record_in(backend.store, delivery_of("a", "b"))
    await record_in(backend.store, delivery_of(key="empty"))
    claims = await QueueWorker(backend.store.queue).claim(limit=10)
    assert sorted(claim.idempotency_key for claim in claims) == ["a", "b"]


async def test_a_delivery_in_a_lane_does_not_block_it(backend: Backend) -> None:
    whole = envelope("delivery", lane="x", outcome=OutcomeName.SPLIT)
    item = envelope("a", lane="x", parent_id=whole.id)
    await record_in(backend.store, [whole, item])
    (claim,) = await QueueWorker(backend.store.queue).claim(limit=10)
    assert claim.id == item.id


async def test_deliveries_are_counted_as_completed(backend: Backend) -> None:
    await record_in(backend.store, delivery_of("a", "b"))
    stats = await backend.reader.stats(backend.clock())
    assert (stats.counts[Status.COMPLETED], stats.counts[Status.PENDING]) == (1, 2)
    assert await backend.reader.waiting(backend.clock()) == 2


async def test_the_same_delivery_again_is_no_new_event(backend: Backend) -> None:
    first = delivery_of("a", "b")
    await record_in(backend.store, first)
    receipts = await record_in(backend.store, delivery_of("a", "b"))
    assert kinds(receipts) == [DUPLICATE] * 3
    assert [receipt.id for receipt in receipts] == [sent.id for sent in first]
    assert receipts[0].status is Status.COMPLETED
    assert [stored["ingest_count"] for stored in await backend.rows()] == [2, 2, 2]
    assert {stored["parent_id"] for stored in await backend.rows()} == {None, first[0].id}


async def test_the_same_delivery_twice_in_one_call_is_recorded_once(backend: Backend) -> None:
    receipts = await record_in(backend.store, [*delivery_of("a"), *delivery_of("a")])
    assert kinds(receipts) == [NEW, NEW, DUPLICATE, DUPLICATE]


async def test_an_item_that_another_delivery_brought_stays_with_that_delivery(
    backend: Backend,
) -> None:
    first, second = delivery_of("a", key="first"), delivery_of("a", "b", key="second")
    await record_in(backend.store, first)
    assert kinds(await record_in(backend.store, second)) == [NEW, DUPLICATE, NEW]
    assert kinds(await record_in(backend.store, delivery_of("a", "b", key="second"))) == [
        *(DUPLICATE, DUPLICATE, DUPLICATE)
    ]
    assert (await row(backend, "a"))["parent_id"] == first[0].id
    assert (await row(backend, "b"))["parent_id"] == second[0].id


async def test_a_new_item_of_a_known_delivery_belongs_to_the_delivery_in_the_ledger(
    backend: Backend,
) -> None:
    first = delivery_of("a")
    await record_in(backend.store, first)
    receipts = await record_in(backend.store, delivery_of("a", "late"))
    assert kinds(receipts) == [DUPLICATE, DUPLICATE, NEW]
    assert (await row(backend, "late"))["parent_id"] == first[0].id


async def test_one_delivery_sent_by_many_at_once_is_recorded_once(backend: Backend) -> None:
    sent = [delivery_of("a", "b", "c") for _ in range(20)]
    results = await asyncio.gather(*(record_in(backend.store, each) for each in sent))
    assert sorted(kind for receipts in results for kind in kinds(receipts)).count(NEW) == 4
    rows = await backend.rows()
    (whole,) = [stored["id"] for stored in rows if stored["outcome"] == "split"]
    assert [stored["parent_id"] for stored in rows if stored["outcome"] is None] == [whole] * 3


async def test_a_delivery_handed_over_again_with_the_same_ids_is_still_new(  # F7
    store: Store,
) -> None:
    sent = delivery_of("a")
    first = await record_in(store, sent)
    assert await record_in(store, sent) == first


async def test_the_outcome_of_a_delivery_is_a_filter(backend: Backend) -> None:
    whole, *items = delivery_of("a", "b")
    await record_in(backend.store, [whole, *items])
    where = EventFilter(outcome=OutcomeName.SPLIT)
    page = await backend.reader.events(where, order=Order.NEWEST, limit=10)
    assert [event.id for event in page.items] == [whole.id]


async def test_the_items_of_a_delivery_are_listed_in_pages(backend: Backend) -> None:
    whole, *items = delivery_of("a", "b", "c")
    await record_in(backend.store, [*delivery_of("x", key="other"), whole, *items])
    await backend.move(items[1].id, Status.FAILED)
    where = EventFilter(parent_id=whole.id)
    first = await backend.reader.events(where, order=Order.OLDEST, limit=2)
    assert [event.idempotency_key for event in first.items] == ["a", "b"]
    rest = await backend.reader.events(where, order=Order.OLDEST, limit=2, cursor=first.next)
    assert ([event.idempotency_key for event in rest.items], rest.next) == (["c"], None)
    newest = await backend.reader.events(where, order=Order.NEWEST, limit=9)
    assert [event.idempotency_key for event in newest.items] == ["c", "b", "a"]
    failed = EventFilter(parent_id=whole.id, status=Status.FAILED)
    (event,) = (await backend.reader.events(failed, order=Order.NEWEST, limit=9)).items
    assert event.id == items[1].id


async def test_items_are_found_in_the_order_of_their_source(backend: Backend) -> None:
    whole = envelope("delivery", outcome=OutcomeName.SPLIT)
    items = [envelope(f"{n}", parent_id=whole.id, source_sequence=-n) for n in range(3)]
    strangers = [envelope("stranger", source_sequence=0), envelope("other")]
    await record_in(backend.store, [whole, *items, *strangers])
    where = EventFilter(parent_id=whole.id, source="webhooks")
    page = await backend.reader.events_of_source(where, limit=9)
    assert [event.idempotency_key for event in page.items] == ["2", "1", "0"]


async def test_the_detail_of_a_delivery_has_its_first_items(backend: Backend) -> None:
    whole, *items = delivery_of(*(f"item-{n:02}" for n in range(21)))
    await record_in(backend.store, [whole, *items])
    detail = await backend.reader.detail(whole.id)
    assert detail is not None
    assert [event.id for event in detail.items.items] == [item.id for item in items[:20]]
    assert detail.items.next is not None
    item = await backend.reader.detail(items[0].id)
    assert item is not None
    assert (item.event.parent_id, item.items.items, item.items.next) == (whole.id, [], None)


async def test_a_replay_leaves_a_delivery_as_it_is(backend: Backend) -> None:
    whole, *items = delivery_of("a")
    await record_in(backend.store, [whole, *items])
    before = await row(backend, "delivery")
    for completed in (False, True):
        done = await backend.store.replay([whole.id], actor="x", completed=completed)
        assert done == {whole.id: ReplayKind.SPLIT}
    assert await row(backend, "delivery") == before


async def test_two_sources_with_the_same_ids_do_not_collide(backend: Backend) -> None:  # F48
    first, second = delivery_of("a"), delivery_of("a")
    await record_in(backend.store, first)
    others = [_of_source("other", each) for each in second]
    assert kinds(await record_in(backend.store, others)) == [NEW, NEW]
    assert [_ids(stored) for stored in await backend.rows()] == [
        ("webhooks", "delivery", None),
        ("webhooks", "a", first[0].id),
        ("other", "delivery", None),
        ("other", "a", second[0].id),
    ]


def _of_source(source: str, sent: Envelope) -> Envelope:
    fields = {name: getattr(sent, name) for name in sent.__struct_fields__}
    return Envelope(**(fields | {"source": source}))


def _ids(stored: Row) -> tuple[str, str, str | None]:
    return stored["source"], stored["idempotency_key"], stored["parent_id"]
