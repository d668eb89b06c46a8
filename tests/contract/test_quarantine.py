"""Requests that failed verification are kept apart from events, within a budget."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ackbox.model import (
    EventId,
    QuarantineBudget,
    QuarantineFilter,
    QuarantineId,
    QuarantineUsage,
    RefusalReason,
    RefusedRequest,
    Removal,
    RemovalKind,
    RetentionPolicy,
)
from support.ledgers.backends import Backend
from support.ledgers.events import NOON, envelopes, record_in
from support.ledgers.refused import refused

AMPLE = QuarantineBudget(1 << 30, 1 << 30)
EVERY = QuarantineFilter()
POLICY = RetentionPolicy(
    keep=timedelta(days=30), keep_keys=timedelta(days=7), keep_quarantined=timedelta(days=7)
)
EVENT = EventId("019ca000-0000-7000-8000-000000000001")


async def keep(
    backend: Backend, *requests: RefusedRequest, budget: QuarantineBudget = AMPLE
) -> list[bool]:
    return await backend.store.quarantine.keep(requests, budget)


async def ids(backend: Backend, where: QuarantineFilter = EVERY) -> list[QuarantineId]:
    page = await backend.reader.quarantine.page(where, limit=100)
    return [item.id for item in page.items]


async def bodies(backend: Backend) -> list[bytes]:
    found = await backend.reader.quarantine.requests(await ids(backend))
    return [item.request.body for item in found]


def drop(numbers: Sequence[QuarantineId]) -> list[Removal]:
    return [Removal(number, RemovalKind.DROPPED) for number in numbers]


@pytest.mark.parametrize("body", [b"", b"\x00\xff{", bytes(range(256)) * 100])
async def test_a_request_is_kept_byte_for_byte(backend: Backend, body: bytes) -> None:
    headers = (("x-hub-signature-256", "sha256=\xff\x00'"), ("x-two", "1"), ("x-two", "2"))
    sent = refused(body=body, headers=headers, delivery_id=EVENT)
    assert await keep(backend, sent) == [True]
    (found,) = await backend.reader.quarantine.requests(await ids(backend))
    assert found.request == sent.request
    record = found.record
    assert (record.source, record.reason, record.detail) == (sent.source, sent.reason, sent.detail)
    assert (record.delivery_id, record.size, record.received_at) == (EVENT, sent.size, NOON)
    assert record.kept_at == backend.clock()


# F46
async def test_a_kept_request_is_no_event(backend: Backend) -> None:
    await keep(backend, refused())
    assert await backend.rows() == []
    assert sum((await backend.reader.stats(backend.clock())).counts.values()) == 0


async def test_requests_are_listed_oldest_first_in_pages(backend: Backend) -> None:
    await keep(backend, *(refused(body=b"%d" % n) for n in range(5)))
    quarantine = backend.reader.quarantine
    first = await quarantine.page(EVERY, limit=2)
    second = await quarantine.page(EVERY, limit=2, cursor=first.next)
    third = await quarantine.page(EVERY, limit=2, cursor=second.next)
    assert [len(page.items) for page in (first, second, third)] == [2, 2, 1]
    assert third.next is None
    listed = [item.id for page in (first, second, third) for item in page.items]
    assert listed == sorted(set(listed))
    assert await bodies(backend) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_list_is_filtered_by_source_reason_and_last_id(backend: Backend) -> None:
    await keep(
        backend,
        refused("github"),
        refused("stripe"),
        refused("github", reason=RefusalReason.BAD_TIME),
    )
    one, two, three = await ids(backend)
    assert await ids(backend, QuarantineFilter(source="github")) == [one, three]
    assert await ids(backend, QuarantineFilter(reason=RefusalReason.BAD_TIME)) == [three]
    both = QuarantineFilter(source="stripe", reason=RefusalReason.BAD_SIGNATURE)
    assert await ids(backend, both) == [two]
    assert await ids(backend, QuarantineFilter(last=two)) == [one, two]
    assert await ids(backend, QuarantineFilter(source="shopify")) == []


async def test_a_source_may_use_its_share_and_no_more(backend: Backend) -> None:
    size = refused().size
    budget = QuarantineBudget(10 * size, 2 * size)
    assert await keep(backend, *[refused()] * 3, budget=budget) == [True, True, False]
    assert await keep(backend, refused(), refused("stripe"), budget=budget) == [False, True]
    usage = await backend.reader.quarantine.usage()
    assert usage == {
        "github": QuarantineUsage(2, 2 * size),
        "stripe": QuarantineUsage(1, size),
    }


async def test_a_source_may_keep_one_request_larger_than_its_share(backend: Backend) -> None:
    large, small = refused(body=bytes(4000)), refused()
    budget = QuarantineBudget(20_000, 2000)
    assert await keep(backend, small, large, large, small, budget=budget) == [
        *(True, True, False, False),
    ]
    others = [replace(large, source="stripe"), replace(large, source="shopify")]
    assert await keep(backend, *others, budget=budget) == [True, False]
    last = refused("shopify")
    assert await keep(backend, last, budget=budget) == [True], "half of the budget was left"


async def test_all_sources_together_stay_within_the_budget(backend: Backend) -> None:
    size = refused("a").size
    budget = QuarantineBudget(2 * size, 2 * size)
    sent = [refused(name, body=b"%d" % n) for n, name in enumerate(("a", "b", "c"))]
    budget = QuarantineBudget(sum(item.size for item in sent[:2]), 2 * size)
    assert await keep(backend, *sent, budget=budget) == [True, True, False]
    assert await bodies(backend) == [b"0", b"1"], "the newest is dropped"


async def test_a_smaller_request_may_fit_after_one_that_does_not(backend: Backend) -> None:
    budget = QuarantineBudget(1000, 1000)
    large, small = refused(body=bytes(2000)), refused()
    assert await keep(backend, large, small, budget=budget) == [False, True]


async def test_keeping_at_the_same_time_does_not_exceed_the_budget(backend: Backend) -> None:
    size = refused().size
    budget = QuarantineBudget(5 * size, 5 * size)
    kept = await asyncio.gather(*(keep(backend, refused(), budget=budget) for _ in range(10)))
    assert sum(sum(item) for item in kept) == 5
    assert len(await ids(backend)) == 5


async def test_a_removed_request_gives_its_room_back(backend: Backend) -> None:
    await keep(backend, refused(), refused("stripe"))
    first, _ = await ids(backend)
    assert await backend.store.quarantine.remove(drop([first]), actor="ann") == {first}
    assert set(await backend.reader.quarantine.usage()) == {"stripe"}
    assert len(await ids(backend)) == 1


async def test_a_removal_is_audited_with_the_event_that_the_request_became(
    backend: Backend,
) -> None:
    (event,) = envelopes(1)
    await record_in(backend.store, [event])
    await keep(backend, refused(), refused(reason=RefusalReason.BAD_TIME))
    one, two = await ids(backend)
    removals = [Removal(one, RemovalKind.RELEASED, event.id), *drop([two])]
    await backend.store.quarantine.remove(removals, actor="ann", peer="10.0.0.1")
    dropped, released = (await backend.reader.audit(limit=10)).items
    assert (released.actor, released.peer, released.event_id) == ("ann", "10.0.0.1", event.id)
    assert released.action == "quarantine"
    assert released.detail == {
        "did": "released",
        "quarantine_id": one,
        "source": "github",
        "reason": "bad_signature",
    }
    assert (dropped.event_id, dropped.detail["did"]) == (None, "dropped")


async def test_of_two_callers_only_one_removes_a_request(backend: Backend) -> None:
    await keep(backend, refused())
    numbers = await ids(backend)
    quarantine = backend.store.quarantine
    removed = await asyncio.gather(
        *(quarantine.remove(drop(numbers), actor=name) for name in ("ann", "bob"))
    )
    assert sorted(map(len, removed)) == [0, 1]
    assert len((await backend.reader.audit(limit=10)).items) == 1


async def test_removing_what_does_not_exist_changes_nothing(backend: Backend) -> None:
    assert await backend.store.quarantine.remove(drop([QuarantineId(7)]), actor="ann") == set()
    assert await backend.store.quarantine.remove([], actor="ann") == set()
    assert (await backend.reader.audit(limit=10)).items == []
    assert await backend.reader.quarantine.requests([QuarantineId(7)]) == []


async def test_an_id_is_never_given_twice(backend: Backend) -> None:
    await keep(backend, refused())
    (first,) = await ids(backend)
    await backend.store.quarantine.remove(drop([first]), actor="ann")
    await keep(backend, refused())
    (second,) = await ids(backend)
    assert second > first, "an operator who types an old id must not hit another request"


# W11
async def test_old_requests_are_deleted_and_their_room_is_free(backend: Backend) -> None:
    await keep(backend, *[refused()] * 3)
    backend.clock.advance(days=6)
    await keep(backend, refused("stripe"))
    assert await backend.store.prune_quarantine(POLICY) == 0
    backend.clock.advance(days=1, seconds=1)
    assert await backend.store.prune_quarantine(POLICY) == 3
    assert await backend.store.prune_quarantine(POLICY) == 0
    assert await backend.reader.quarantine.usage() == {
        "stripe": QuarantineUsage(1, refused("stripe").size)
    }


async def test_nothing_is_kept_without_requests(backend: Backend) -> None:
    assert await keep(backend) == []


async def test_a_detail_with_any_text_is_kept(backend: Backend) -> None:
    await keep(backend, replace(refused(), detail="odd \x00 \ud800 text"))
    assert len(await ids(backend)) == 1
