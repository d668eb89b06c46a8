"""`Ledger.record`: a cursor moves with the events read up to it, or not at all."""

import asyncio
from random import uniform

import pytest

from ackbox.errors import InvalidEvent
from ackbox.ingest import Ingest, Limits
from ackbox.model import Cursor, Submission
from ackbox.ports import Store
from ackbox.telemetry import ignore_facts
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, envelopes, record_in
from support.time.supervisor import supervisor


async def test_a_source_that_was_never_read_has_no_cursor(store: Store) -> None:
    assert await store.cursor("feed") is None


async def test_a_cursor_is_saved_with_its_events_and_replaced_by_the_next(store: Store) -> None:
    await record_in(store, envelopes(2), Cursor("feed", "page-1"))
    assert await store.cursor("feed") == "page-1"
    await record_in(store, [envelope("later")], Cursor("feed", "page-2"))
    assert await store.cursor("feed") == "page-2"


async def test_a_cursor_moves_even_if_every_event_was_known(backend: Backend) -> None:  # F12
    await record_in(backend.store, [envelope()])
    await record_in(backend.store, [envelope()], Cursor("feed", "page-1"))
    assert await backend.store.cursor("feed") == "page-1"
    assert len(await backend.rows()) == 1


async def test_a_cursor_moves_even_past_a_page_without_events(store: Store) -> None:
    assert await record_in(store, [], Cursor("feed", "page-1")) == []
    assert await store.cursor("feed") == "page-1"


async def test_each_source_has_its_own_cursor(store: Store) -> None:
    await record_in(store, [], Cursor("one", "1"))
    await record_in(store, [], Cursor("two", "2"))
    assert await store.cursor("one") == "1"


async def test_a_cursor_that_cannot_be_saved_rolls_back_its_events(backend: Backend) -> None:
    with pytest.raises(InvalidEvent):  # F12
        await record_in(backend.store, envelopes(3), Cursor("feed", "\ud800"))
    assert await backend.rows() == []
    assert (await backend.reader.stats(backend.clock())).pending == 0
    assert await backend.store.cursor("feed") is None


async def test_events_that_cannot_be_stored_leave_the_cursor_where_it_was(store: Store) -> None:
    await record_in(store, [], Cursor("feed", "page-1"))
    bad = envelope("bad", source_sequence=2**63)
    with pytest.raises(InvalidEvent):  # F12
        await record_in(store, [envelope(), bad], Cursor("feed", "page-2"))
    assert await store.cursor("feed") == "page-1"


async def test_a_failing_call_does_not_affect_the_cursor_of_a_concurrent_call(store: Store) -> None:
    bad = envelope("bad", source_sequence=2**63)
    results = await asyncio.gather(
        record_in(store, [envelope("good")], Cursor("one", "1")),
        record_in(store, [bad], Cursor("two", "2")),
        return_exceptions=True,
    )
    assert isinstance(results[1], InvalidEvent)
    assert await store.cursor("one") == "1"
    assert await store.cursor("two") is None


async def test_the_submissions_of_a_call_are_recorded_in_their_order(backend: Backend) -> None:
    first, second, third = envelopes(3)
    receipts = await backend.store.record(
        [Submission([first, second]), Submission([]), Submission([third])]
    )
    assert [receipt.id for receipt in receipts] == [first.id, second.id, third.id]
    assert [row["id"] for row in await backend.rows()] == [first.id, second.id, third.id]


async def test_each_submission_of_a_call_moves_its_own_cursor(store: Store) -> None:
    await store.record(
        [
            Submission([envelope("a")], Cursor("one", "1")),
            Submission([envelope("b")]),
            Submission([envelope("c")], Cursor("two", "2")),
            Submission([envelope("d")], Cursor("one", "3")),
        ]
    )
    assert (await store.cursor("one"), await store.cursor("two")) == ("3", "2")


async def test_a_bad_submission_leaves_nothing_of_its_call(backend: Backend) -> None:  # F12, F28
    bad = envelope("bad", source_sequence=2**63)
    with pytest.raises(InvalidEvent):
        await backend.store.record(
            [
                Submission([envelope("good")], Cursor("one", "1")),
                Submission([bad], Cursor("two", "2")),
            ]
        )
    assert await backend.rows() == []
    assert (await backend.store.cursor("one"), await backend.store.cursor("two")) == (None, None)


async def test_ingest_lets_a_bad_submission_fail_alone(backend: Backend) -> None:  # F12, F28
    limits = Limits(buffer_events=100, buffer_bytes=1 << 20, queue_events=1000, timeout=60.0)
    ingest = Ingest(backend.store, limits, backlog=0, observe=ignore_facts, uniform=uniform)
    calls = [
        ingest.submit(Submission([envelope("a")], Cursor("one", "1"))),
        ingest.submit(
            Submission([envelope("b"), envelope("bad", source_sequence=2**63)], Cursor("two", "2"))
        ),
        ingest.submit(Submission([envelope("c")], Cursor("three", "3"))),
    ]
    ingest.start(supervisor())  # now, so that the three share a batch
    results = await asyncio.gather(*calls, return_exceptions=True)
    await ingest.close()
    assert [type(result) for result in results] == [list, InvalidEvent, list]
    assert [row["idempotency_key"] for row in await backend.rows()] == ["a", "c"]
    cursors = [await backend.store.cursor(source) for source in ("one", "two", "three")]
    assert cursors == ["1", None, "3"]


async def test_proving_writable_leaves_no_event(backend: Backend) -> None:
    await backend.store.prove_writable()
    await backend.store.prove_writable()
    assert await backend.rows() == []
    assert backend.store.unavailable_reason is None
