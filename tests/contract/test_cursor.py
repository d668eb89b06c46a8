"""`Ledger.record(cursor=)`: a cursor moves with the events read up to it, or not at all."""

import asyncio

import pytest

from ackbox.errors import InvalidEvent
from ackbox.model import Cursor
from ackbox.ports import Store
from support.backends import Backend
from support.events import envelope, envelopes


async def test_a_source_that_was_never_read_has_no_cursor(store: Store) -> None:
    assert await store.cursor("feed") is None


async def test_a_cursor_is_saved_with_its_events_and_replaced_by_the_next(store: Store) -> None:
    await store.record(envelopes(2), cursor=Cursor("feed", "page-1"))
    assert await store.cursor("feed") == "page-1"
    await store.record([envelope("later")], cursor=Cursor("feed", "page-2"))
    assert await store.cursor("feed") == "page-2"


async def test_a_cursor_moves_even_if_every_event_was_known(backend: Backend) -> None:  # F12
    await backend.store.record([envelope()])
    await backend.store.record([envelope()], cursor=Cursor("feed", "page-1"))
    assert await backend.store.cursor("feed") == "page-1"
    assert len(await backend.rows()) == 1


async def test_a_cursor_moves_even_past_a_page_without_events(store: Store) -> None:
    assert await store.record([], cursor=Cursor("feed", "page-1")) == []
    assert await store.cursor("feed") == "page-1"


async def test_each_source_has_its_own_cursor(store: Store) -> None:
    await store.record([], cursor=Cursor("one", "1"))
    await store.record([], cursor=Cursor("two", "2"))
    assert await store.cursor("one") == "1"


async def test_a_cursor_that_cannot_be_saved_rolls_back_its_events(backend: Backend) -> None:
    with pytest.raises(InvalidEvent):  # F12
        await backend.store.record(envelopes(3), cursor=Cursor("feed", "\ud800"))
    assert await backend.rows() == []
    assert (await backend.reader.stats()).pending == 0
    assert await backend.store.cursor("feed") is None


async def test_events_that_cannot_be_stored_leave_the_cursor_where_it_was(store: Store) -> None:
    await store.record([], cursor=Cursor("feed", "page-1"))
    bad = envelope("bad", source_sequence=2**63)
    with pytest.raises(InvalidEvent):  # F12
        await store.record([envelope(), bad], cursor=Cursor("feed", "page-2"))
    assert await store.cursor("feed") == "page-1"


async def test_a_failing_call_does_not_affect_the_cursor_of_a_concurrent_call(store: Store) -> None:
    bad = envelope("bad", source_sequence=2**63)
    results = await asyncio.gather(
        store.record([envelope("good")], cursor=Cursor("one", "1")),
        store.record([bad], cursor=Cursor("two", "2")),
        return_exceptions=True,
    )
    assert isinstance(results[1], InvalidEvent)
    assert await store.cursor("one") == "1"
    assert await store.cursor("two") is None


async def test_proving_writable_leaves_no_event(backend: Backend) -> None:
    await backend.store.prove_writable()
    await backend.store.prove_writable()
    assert await backend.rows() == []
    assert backend.store.unavailable_reason is None
