"""`Reader`: the operator's filters, the order of a source, and the detail of an event (L7, L11)."""

from datetime import datetime, timedelta

import pytest

from ackbox.model import (
    Done,
    Envelope,
    EventDetail,
    EventFilter,
    EventId,
    Order,
    Release,
    SourceCursor,
    Status,
)
from support.http.posting import new_key
from support.ledgers.backends import Backend
from support.ledgers.events import NOON, envelope, envelopes, record_in
from support.workers.event_runs import DEAD, WORKER, claim, retry_later, settle, work

WEBHOOKS = EventFilter(source="webhooks")


async def listed(backend: Backend, where: EventFilter) -> list[EventId]:
    page = await backend.reader.events(where, order=Order.OLDEST, limit=100)
    return [event.id for event in page.items]


async def in_order(
    backend: Backend, where: EventFilter = WEBHOOKS, limit: int = 2
) -> list[EventId]:
    """Return the ids of all pages."""
    ids: list[EventId] = []
    cursor: SourceCursor | None = None
    while True:
        page = await backend.reader.events_of_source(where, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        ids += [event.id for event in page.items]
        assert len(ids) == len(set(ids))  # a repeated page would follow itself without end
        if (cursor := page.next) is None:
            return ids


async def detail(backend: Backend, sent: Envelope) -> EventDetail:
    shown = await backend.reader.detail(sent.id)
    assert shown is not None
    return shown


# L11
async def test_filters_by_outcome_error_and_lane(backend: Backend) -> None:
    ignored, dead, parked, laned = sent = [*envelopes(3), envelope("laned", lane="l")]
    await record_in(backend.store, sent)
    await work(backend.store, [ignored], Done("ignored"))
    await work(backend.store, [dead], DEAD)
    await work(backend.store, [parked], Release(parked=True))
    assert await listed(backend, EventFilter(outcome="ignored")) == [ignored.id]
    assert await listed(backend, EventFilter(error_code="boom")) == [dead.id]
    assert await listed(backend, EventFilter(outcome="parked", status=Status.PENDING)) == [
        parked.id
    ]
    assert await listed(backend, EventFilter(lane="l")) == [laned.id]
    assert await listed(backend, EventFilter(lane="l", error_code="boom")) == []


def numbered(sequence: int | None, emitted: datetime | None = None) -> Envelope:
    return envelope(new_key(), source_sequence=sequence, source_emitted_at=emitted)


# L7
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_source_is_read_by_sequence_then_its_time_then_arrival(
    backend: Backend, limit: int
) -> None:
    late, early = NOON + timedelta(hours=1), NOON
    wanted = [
        numbered(-5),
        numbered(1, early),
        numbered(1, late),
        numbered(1),
        numbered(7, early),
        numbered(None, early),
        numbered(None, late),
        numbered(None),
    ]
    shuffled = [wanted[n] for n in (7, 3, 0, 6, 4, 2, 5, 1)]
    last = numbered(None)
    strangers = [envelope(f"s-{n}", source="shop", source_sequence=n) for n in range(3)]
    await record_in(backend.store, [*strangers, *shuffled, last])
    ids = await in_order(backend, limit=limit)
    assert ids == [item.id for item in [*wanted, last]]


# L7
async def test_equal_numbers_and_times_are_read_by_arrival(backend: Backend) -> None:
    sent = [envelope(f"{n}", source_sequence=1, source_emitted_at=NOON) for n in range(7)]
    await record_in(backend.store, sent)
    assert await in_order(backend) == [item.id for item in sent]


# L7, L13
async def test_the_order_of_a_source_takes_filters_in_short_pages(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackbox.stores.paging.SOURCE_WINDOW", 5)
    monkeypatch.setattr("ackbox.stores.paging.WINDOW", 5)
    sent = [
        envelope(f"{n}", event_type="rare" if n % 9 == 0 else "usual", source_sequence=s)
        for n, s in enumerate([*range(20, 0, -1), *[None] * 20])
    ]
    await record_in(backend.store, sent)
    rare = [item for item in sent if item.event_type == "rare"]
    with_number = sorted(
        (item for item in rare if item.source_sequence is not None),
        key=lambda item: item.source_sequence or 0,
    )
    without = [item for item in rare if item.source_sequence is None]
    where = EventFilter(source="webhooks", event_type="rare")
    assert await in_order(backend, where) == [item.id for item in [*with_number, *without]]


async def test_an_unknown_event_has_no_detail(backend: Backend) -> None:
    assert await backend.reader.detail(envelope().id) is None


# L11
async def test_the_detail_has_every_failed_run(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    for _ in range(2):
        await work(backend.store, [sent], retry_later(timedelta(0)))
    await work(backend.store, [sent], DEAD)
    shown = await detail(backend, sent)
    assert [(run.attempt, run.run, run.code, run.error) for run in shown.errors] == [
        (n, n, "boom", "it broke") for n in (1, 2, 3)
    ]
    assert shown.errors[0].at == backend.clock.now
    assert [run.traceback for run in shown.errors] == [None, None, "where it broke"]  # N2
    assert shown.event.status is Status.FAILED
    assert shown.claimable_at is None


# L11
async def test_the_detail_says_who_holds_the_event_and_until_when(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await claim(backend.store)
    shown = await detail(backend, sent)
    assert shown.event.processor_id == WORKER
    assert shown.claimable_at == shown.event.lease_until == NOON + timedelta(seconds=30)


# L11
async def test_the_detail_says_what_an_event_of_a_lane_waits_for(backend: Backend) -> None:
    first, second, third = sent = [envelope(f"{n}", lane="l") for n in range(3)]
    await record_in(backend.store, sent)
    behind = (await detail(backend, third)).behind
    assert behind is not None
    assert behind.id == first.id
    assert (await detail(backend, first)).behind is None
    await work(backend.store, [first], DEAD)
    running = await claim(backend.store)
    await backend.store.replay([first.id], actor="tester")
    behind = (await detail(backend, first)).behind
    assert behind is not None
    assert behind.id == second.id  # the running event, although it arrived later
    behind = (await detail(backend, third)).behind
    assert behind is not None
    assert behind.id == first.id  # the oldest event, although another is running
    await settle(backend.store, running)
    assert (await detail(backend, first)).behind is None


# L11
async def test_the_detail_has_what_operators_did(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], DEAD)
    await backend.store.replay([sent.id], actor="tester")
    (entry,) = (await detail(backend, sent)).audit
    assert (entry.actor, entry.detail["did"]) == ("tester", "replayed")
