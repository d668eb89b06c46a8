"""Payloads of senders that do not sign the key: a captured request is absorbed (F47)."""

import asyncio
from typing import Any

from ackbox.model import (
    Envelope,
    OutcomeName,
    Receipt,
    ReceiptKind,
    Status,
    Submission,
    fingerprint,
    to_text,
)
from support.ledgers.backends import Backend, row
from support.ledgers.events import NOON, envelope, record_in

NEW, DUPLICATE, CONFLICT = ReceiptKind.NEW, ReceiptKind.DUPLICATE, ReceiptKind.CONFLICT


def unsigned(key: str, payload: bytes = b"body", **more: Any) -> Envelope:
    more = {"fingerprint": fingerprint(payload)} | more
    return envelope(key, payload, source="github", **more)


async def kinds(backend: Backend, *sent: Envelope) -> list[ReceiptKind]:
    """Record the envelopes in one call, each as a submission of its own."""
    receipts = await backend.store.record([Submission([each]) for each in sent])
    return [receipt.kind for receipt in receipts]


async def keys(backend: Backend) -> list[tuple[str, int, int]]:
    return [
        (stored["idempotency_key"], stored["ingest_count"], stored["conflict_count"])
        for stored in await backend.rows()
    ]


async def test_a_known_payload_under_another_key_is_a_duplicate_of_the_first(  # F47
    backend: Backend,
) -> None:
    first = unsigned("first")
    await record_in(backend.store, [first])
    backend.clock.advance(hours=1)
    receipts = await record_in(backend.store, [unsigned("captured", at=backend.clock())])
    assert receipts == [Receipt(DUPLICATE, first.id, Status.PENDING, NOON)]
    assert await keys(backend) == [("first", 2, 0)]
    assert (await row(backend, "first"))["last_seen_at"] == to_text(backend.clock())


async def test_the_same_signed_bytes_with_another_payload_are_no_new_event(  # F47
    backend: Backend,
) -> None:
    signed = fingerprint(b"signed")
    assert await kinds(backend, unsigned("first", b"a=bc", fingerprint=signed)) == [NEW]
    moved = [unsigned(f"{n}", b"ab=c%d" % n, fingerprint=signed) for n in range(2)]
    assert await kinds(backend, *moved) == [CONFLICT, CONFLICT]
    assert await kinds(backend, unsigned("other", b"a=bc")) == [NEW]
    assert await keys(backend) == [("first", 3, 2), ("other", 1, 0)]


async def test_a_payload_is_forgotten_after_24_hours(backend: Backend) -> None:  # F47
    assert await kinds(backend, unsigned("first")) == [NEW]
    backend.clock.advance(hours=24, seconds=-1)
    assert await kinds(backend, unsigned("second")) == [DUPLICATE]
    backend.clock.advance(seconds=1)
    assert await kinds(backend, unsigned("third")) == [NEW]
    backend.clock.advance(hours=23)
    assert await kinds(backend, unsigned("fourth")) == [DUPLICATE]
    assert await keys(backend) == [("first", 2, 0), ("third", 2, 0)]


async def test_another_payload_or_source_is_a_new_event(backend: Backend) -> None:  # F48
    other = envelope("third", b"body", source="shopify", fingerprint=fingerprint(b"body"))
    assert await kinds(backend, unsigned("first"), unsigned("second", b"other"), other) == [NEW] * 3


async def test_equal_payloads_without_fingerprints_are_separate_events(backend: Backend) -> None:
    plain = [envelope(key, b"body", source="github") for key in ("first", "second")]
    assert await kinds(backend, *plain) == [NEW, NEW]
    assert await kinds(backend, unsigned("third")) == [NEW]
    assert await backend.fetch("SELECT idempotency_key FROM fingerprints") == [("third",)]


async def test_a_payload_is_known_within_one_call(backend: Backend) -> None:
    sent = [unsigned("first"), unsigned("second"), unsigned("first"), unsigned("fourth", b"other")]
    assert await kinds(backend, *sent) == [NEW, DUPLICATE, DUPLICATE, NEW]
    assert await keys(backend) == [("first", 3, 0), ("fourth", 1, 0)]


async def test_a_known_key_with_another_payload_stays_a_conflict(backend: Backend) -> None:
    await record_in(backend.store, [unsigned("first", b"one")])
    await record_in(backend.store, [unsigned("second", b"two")])
    assert await kinds(backend, unsigned("first", b"two")) == [CONFLICT]
    assert await keys(backend) == [("first", 2, 1), ("second", 1, 0)]


async def test_a_conflict_leaves_no_fingerprint_that_would_absorb_another_event(
    backend: Backend,
) -> None:
    await record_in(backend.store, [unsigned("first", b"one")])
    assert await kinds(backend, unsigned("first", b"two"), unsigned("second", b"two")) == [
        *(CONFLICT, NEW)
    ]
    assert await kinds(backend, unsigned("third", b"two")) == [DUPLICATE]
    assert await keys(backend) == [("first", 2, 1), ("second", 2, 0)]


async def test_a_conflict_within_one_call_leaves_no_fingerprint(backend: Backend) -> None:
    sent = [unsigned("first", b"one"), unsigned("first", b"two"), unsigned("second", b"two")]
    assert await kinds(backend, *sent) == [NEW, CONFLICT, NEW]
    assert await keys(backend) == [("first", 2, 1), ("second", 1, 0)]


async def test_two_captured_payloads_under_one_new_key_are_both_absorbed(  # F47
    backend: Backend,
) -> None:
    await record_in(backend.store, [unsigned("first", b"one")])
    await record_in(backend.store, [unsigned("second", b"two")])
    captured = [unsigned("new", b"one"), unsigned("new", b"two")]
    assert await kinds(backend, *captured) == [DUPLICATE, DUPLICATE]
    assert await keys(backend) == [("first", 2, 0), ("second", 2, 0)]


async def test_of_many_concurrent_calls_with_one_payload_one_is_new(  # F47
    backend: Backend,
) -> None:
    sent = [[unsigned(f"{n}"), unsigned(f"own-{n}", b"%d" % n)] for n in range(20)]
    results = await asyncio.gather(*(kinds(backend, *each) for each in sent))
    assert sorted(first for first, _ in results).count(NEW) == 1
    assert {second for _, second in results} == {NEW}
    counts = {stored["payload"]: stored["ingest_count"] for stored in await backend.rows()}
    assert counts == {b"body": 20} | {b"%d" % n: 1 for n in range(20)}


async def test_the_same_envelope_handed_over_again_is_still_the_new_one(  # F7
    backend: Backend,
) -> None:
    sent = unsigned("first")
    first = await record_in(backend.store, [sent])
    assert await record_in(backend.store, [sent]) == first


async def test_a_captured_delivery_brings_no_new_items(backend: Backend) -> None:  # F47
    def delivery(key: str, *items: str) -> list[Envelope]:
        whole = unsigned(key, outcome=OutcomeName.SPLIT)
        made = [envelope(item, item.encode(), source="github") for item in items]
        return [whole, *(_with_parent(item, whole) for item in made)]

    first = delivery("first", "a", "b")
    await record_in(backend.store, first)
    receipts = await record_in(backend.store, delivery("captured", "a", "b", "late"))
    assert [receipt.kind for receipt in receipts] == [DUPLICATE, DUPLICATE, DUPLICATE, NEW]
    assert receipts[0].id == first[0].id
    assert (await row(backend, "late"))["parent_id"] == first[0].id


async def test_an_event_in_a_lane_gets_its_fingerprint(backend: Backend) -> None:
    assert await kinds(backend, unsigned("first", lane="x"), unsigned("other", b"o", lane="x")) == [
        *(NEW, NEW)
    ]
    assert await kinds(backend, unsigned("captured", lane="x")) == [DUPLICATE]


async def test_retention_deletes_fingerprints_that_have_expired_in_batches(  # W11
    backend: Backend,
) -> None:
    await record_in(backend.store, [unsigned(f"{n}", b"%d" % n) for n in range(1001)])
    backend.clock.advance(hours=23)
    await record_in(backend.store, [unsigned("young", b"young")])
    backend.clock.advance(hours=1)
    deleted = [await backend.store.prune_fingerprints() for _ in range(3)]
    assert deleted == [1000, 1, 0]
    assert await backend.fetch("SELECT idempotency_key FROM fingerprints") == [("young",)]


def _with_parent(item: Envelope, whole: Envelope) -> Envelope:
    fields = {name: getattr(item, name) for name in item.__struct_fields__}
    return Envelope(**(fields | {"parent_id": whole.id}))
