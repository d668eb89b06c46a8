"""`Ledger.record`: new events, duplicates, conflicts, and the columns that never change."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackbox.errors import InvalidEvent
from ackbox.model import (
    Content,
    Envelope,
    EventKey,
    Receipt,
    ReceiptKind,
    Status,
    fingerprint,
    to_text,
)
from ackbox.ports import Reader, Store
from support.ledgers.backends import Backend, Fresh
from support.ledgers.events import NOON, envelope, envelopes, record_in

NEW, DUPLICATE, CONFLICT = ReceiptKind.NEW, ReceiptKind.DUPLICATE, ReceiptKind.CONFLICT
LATER = NOON + timedelta(minutes=5)
MIB = 1024 * 1024
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=255)


def kinds(receipts: list[Receipt]) -> list[ReceiptKind]:
    return [receipt.kind for receipt in receipts]


async def test_a_new_event_is_pending_under_its_own_id(store: Store) -> None:  # W8
    sent = envelope()
    assert await record_in(store, [sent]) == [Receipt(NEW, sent.id, Status.PENDING, NOON)]


async def test_a_duplicate_gets_the_first_id_and_its_current_status(  # W8
    backend: Backend,
) -> None:
    first = envelope()
    await record_in(backend.store, [first])
    await backend.move(first.id, Status.COMPLETED)
    receipts = await record_in(backend.store, [envelope(at=LATER)])
    assert receipts == [Receipt(DUPLICATE, first.id, Status.COMPLETED, NOON)]


async def test_other_bytes_under_a_known_key_are_a_conflict_and_the_first_stay(  # F30
    store: Store, reader: Reader
) -> None:
    first = envelope(payload=b"first")
    await record_in(store, [first])
    receipts = await record_in(store, [envelope(payload=b"second")])
    assert receipts == [Receipt(CONFLICT, first.id, Status.PENDING, NOON)]
    assert await reader.content(first.id) == Content(b"first", None)


async def test_a_repeat_counts_itself_and_refreshes_last_seen_and_changes_nothing_else(  # L6
    backend: Backend,
) -> None:
    first = envelope(
        payload=b"first", event_type="invoice.paid", lane="a", source_sequence=1, request_id="r-1"
    )
    await record_in(backend.store, [first])
    (before,) = await backend.rows()
    backend.clock.now = LATER
    await record_in(
        backend.store, [envelope(payload=b"first", event_type="other", at=LATER, lane="b")]
    )
    await record_in(backend.store, [envelope(payload=b"other", source_sequence=9, at=LATER)])
    (after,) = await backend.rows()
    changed = {"ingest_count": 3, "conflict_count": 1, "last_seen_at": to_text(LATER)}
    assert after == before | changed


async def test_a_late_repeat_never_moves_last_seen_backwards(backend: Backend) -> None:  # L6
    backend.clock.now = LATER
    await record_in(backend.store, [envelope(at=LATER)])
    backend.clock.now = NOON
    await record_in(backend.store, [envelope(at=NOON)])
    (row,) = await backend.rows()
    assert row["last_seen_at"] == to_text(LATER)


async def test_last_seen_is_the_latest_of_several_repeats_in_one_call(backend: Backend) -> None:
    backend.clock.now = LATER
    await record_in(backend.store, [envelope(at=NOON), envelope(at=LATER), envelope(at=NOON)])
    (row,) = await backend.rows()
    assert row["last_seen_at"] == to_text(LATER)


async def test_one_key_many_times_in_one_call_is_one_row(backend: Backend) -> None:  # F30
    sent = [envelope(payload=b"a"), envelope(payload=b"a"), envelope(payload=b"b")]
    receipts = await record_in(backend.store, sent)
    assert kinds(receipts) == [NEW, DUPLICATE, CONFLICT]
    assert {receipt.id for receipt in receipts} == {sent[0].id}
    (row,) = await backend.rows()
    assert (row["ingest_count"], row["conflict_count"], row["payload"]) == (3, 1, b"a")


@pytest.mark.parametrize("bodies", [[b"same"], [b"one", b"other"]], ids=["same", "other bytes"])
async def test_a_hundred_concurrent_records_of_one_key_are_one_row_and_one_id(  # F30
    backend: Backend, bodies: list[bytes]
) -> None:
    sent = [envelope(payload=bodies[n % len(bodies)]) for n in range(100)]
    results = await asyncio.gather(*[record_in(backend.store, [item]) for item in sent])
    receipts = [receipt for result in results for receipt in result]
    assert kinds(receipts).count(NEW) == 1
    assert len({receipt.id for receipt in receipts}) == 1
    (row,) = await backend.rows()
    assert row["id"] == receipts[0].id
    assert row["ingest_count"] == 100
    assert row["conflict_count"] == kinds(receipts).count(CONFLICT)
    assert row["conflict_count"] == (0 if len(bodies) == 1 else 50)


async def test_a_key_belongs_to_its_source(backend: Backend) -> None:  # F48
    sent = [envelope("victim", source="stripe"), envelope("victim", source="github")]
    assert kinds(await record_in(backend.store, sent)) == [NEW, NEW]
    assert len(await backend.rows()) == 2


async def test_receipts_come_in_the_order_of_the_envelopes(store: Store) -> None:
    known = envelopes(40, prefix="known")
    await record_in(store, known)
    fresh = envelopes(41, prefix="fresh")
    mixed = [fresh[0]]
    for n in range(40):
        mixed += [envelope(f"known-{n}", known[n].payload), fresh[n + 1]]
    receipts = await record_in(store, mixed)
    assert kinds(receipts) == [NEW, *[DUPLICATE, NEW] * 40]
    expected = [fresh[0].id]
    for n in range(40):
        expected += [known[n].id, fresh[n + 1].id]
    assert [receipt.id for receipt in receipts] == expected


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 255, 1000, 3333])
async def test_a_call_of_any_size_stores_every_event_in_its_order(  # L4
    backend: Backend, count: int
) -> None:
    sent = envelopes(count)
    receipts = await record_in(backend.store, sent)
    assert kinds(receipts) == [NEW] * count
    assert [row["id"] for row in await backend.rows()] == [item.id for item in sent]


async def test_a_large_call_with_one_known_key_counts_one_duplicate(backend: Backend) -> None:
    await record_in(backend.store, [envelope("key-200", b"other bytes")])
    receipts = await record_in(backend.store, envelopes(300))
    assert kinds(receipts).count(NEW) == 299
    assert receipts[200].kind is CONFLICT
    counts = [row["ingest_count"] for row in await backend.rows()]
    assert (len(counts), sum(counts)) == (300, 301)


PAYLOADS = {
    "empty": b"",
    "NUL": b"\0",
    "NUL inside": b'{"a":"x\0y"}',
    "invalid UTF-8": b"\xff\xfe\x80",
    "lone surrogate": b"\xed\xa0\x80",
    "text": "snow ☃".encode(),
    "looks like a number": b"12345678901234567890.10",
    "1 MiB": bytes(range(256)) * (MIB // 256),
    "16 MiB": b"\0" * 16 * MIB,
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
async def test_a_payload_is_kept_to_the_byte(  # F41
    store: Store, reader: Reader, payload: bytes
) -> None:
    sent = envelope(payload=payload)
    await record_in(store, [sent])
    assert await reader.content(sent.id) == Content(payload, None)
    event = await reader.event(sent.id)
    assert event is not None
    assert (event.payload_bytes, event.payload_sha256) == (len(payload), fingerprint(payload).hex())


@pytest.mark.parametrize("number", [None, 0, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
async def test_a_source_sequence_of_64_bits_is_kept(  # L7
    store: Store, reader: Reader, number: int | None
) -> None:
    sent = envelope(source_sequence=number)
    await record_in(store, [sent])
    event = await reader.event(sent.id)
    assert event is not None
    assert event.source_sequence == number


BAD = {
    "sequence over 64 bits": envelope("bad", source_sequence=2**63),
    "lone surrogate in the key": envelope("bad\ud800"),
    "lone surrogate in the type": envelope("bad", event_type="\udfff"),
    "no text where text must be": envelope("bad", transport=None),
    "an object where text must be": envelope("bad", lane=object()),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_an_event_that_can_never_be_stored_is_invalid_and_rolls_back_its_call(  # F28
    backend: Backend, bad: Envelope
) -> None:
    with pytest.raises(InvalidEvent):
        await record_in(backend.store, [envelope("good"), bad])
    assert await backend.rows() == []


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_a_bad_call_does_not_affect_63_concurrent_calls(  # F28
    backend: Backend, bad: Envelope
) -> None:
    calls = [[item] for item in envelopes(63)]
    calls.insert(31, [bad])
    results = await asyncio.gather(
        *[record_in(backend.store, call) for call in calls], return_exceptions=True
    )
    assert isinstance(results.pop(31), InvalidEvent)
    assert all(isinstance(result, list) and result[0].kind is NEW for result in results)
    assert len(await backend.rows()) == 63


async def test_the_same_envelope_handed_over_again_is_still_the_new_one(  # F7
    backend: Backend,
) -> None:
    """Ingest retries after an unknown outcome with the same envelope, which is not a repeat."""
    sent = envelope()
    await record_in(backend.store, [sent])
    assert kinds(await record_in(backend.store, [sent])) == [NEW]
    (row,) = await backend.rows()
    assert row["ingest_count"] == 1
    assert (await backend.reader.stats(backend.clock())).pending == 1


async def test_a_cancelled_caller_changes_nothing_about_the_transaction(  # F27
    backend: Backend,
) -> None:
    calls = [asyncio.ensure_future(record_in(backend.store, [item])) for item in envelopes(20)]
    await asyncio.sleep(0)  # all of them have been submitted
    for call in calls[::2]:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 10
    await backend.close()  # waits for the cancelled calls too
    await backend.open()
    assert len(await backend.rows()) == 20
    assert kinds(await record_in(backend.store, [envelope("after")])) == [NEW]


async def test_every_field_of_an_envelope_is_kept(store: Store, reader: Reader) -> None:  # L2, L7
    emitted = datetime(2026, 1, 31, 11, 59, 59, 999_999, tzinfo=UTC)
    sent = envelope(
        "k/1",
        b"[]",
        source="stripe",
        event_type="invoice.paid",
        content_type="application/json; charset=utf-8",
        source_sequence=7,
        source_emitted_at=emitted,
        lane="customer-1",
        transport="websocket",
        verified_by="hmac",
        request_id="r-1",
        parent_id=envelope().id,
    )
    await record_in(store, [sent])
    event = await reader.event(sent.id)
    assert event is not None
    for name in set(Envelope.__struct_fields__) & set(event.__struct_fields__) - {"payload_sha256"}:
        assert getattr(event, name) == getattr(sent, name), name
    assert (event.created_at, event.updated_at, event.last_seen_at) == (NOON, NOON, NOON)
    assert (event.attempts, event.run, event.ingest_count, event.conflict_count) == (0, 0, 1, 0)


async def test_headers_are_kept(backend: Backend) -> None:
    await record_in(backend.store, [envelope(headers='{"content-type":"text/plain"}')])
    (row,) = await backend.rows()
    assert row["headers"] == '{"content-type":"text/plain"}'


TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(999, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    datetime(2026, 1, 31, tzinfo=UTC),
    datetime(2026, 1, 31, 0, 0, 0, 500_000, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


async def test_times_are_text_of_fixed_width_whose_order_is_time_order(backend: Backend) -> None:
    sent = [envelope(str(n), at=NOON, source_emitted_at=at) for n, at in enumerate(TIMES)]  # W9
    await record_in(backend.store, sent)
    texts = [row["source_emitted_at"] for row in await backend.rows()]
    assert texts == sorted(texts)
    assert {len(text) for text in texts} == {len("YYYY-MM-DDTHH:MM:SS.ffffffZ")}
    assert [datetime.fromisoformat(text) for text in texts] == TIMES


async def test_a_ledger_id_is_never_given_twice(backend: Backend) -> None:
    await record_in(backend.store, envelopes(3))
    last = (await backend.rows())[-1]
    await backend.remove(last["id"])
    await record_in(backend.store, [envelope("after")])
    assert (await backend.rows())[-1]["ledger_id"] > last["ledger_id"]


@settings(max_examples=15, deadline=None)
@given(keys=st.lists(NAMES, min_size=1, max_size=40, unique=True))
async def test_any_text_is_a_key_and_is_recognized(fresh: Fresh, keys: list[str]) -> None:
    async with fresh() as backend:
        first = [envelope(key, source=key[::-1]) for key in keys]
        assert kinds(await record_in(backend.store, first)) == [NEW] * len(keys)
        repeats = [envelope(key, source=key[::-1]) for key in keys]
        receipts = await record_in(backend.store, [envelope(), *repeats])
        assert kinds(receipts) == [NEW, *[DUPLICATE] * len(keys)]
        assert [receipt.id for receipt in receipts[1:]] == [item.id for item in first]
        event = await backend.reader.event(EventKey(keys[0][::-1], keys[0]))
        assert event is not None
        assert (event.id, event.ingest_count) == (first[0].id, 2)
