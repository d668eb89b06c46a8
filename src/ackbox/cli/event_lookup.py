"""Reading the ledger for a command: pages put together, and events found by what people type."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import asdict

from ackbox.app import open_ledger_to_read
from ackbox.config import load_from_process
from ackbox.errors import CommandFailed
from ackbox.model import (
    EventDetail,
    EventFilter,
    EventId,
    EventRecord,
    FailedRun,
    Order,
    Page,
    SourceCursor,
    SourcePage,
    check_name,
    to_text,
)
from ackbox.ports import Reader

T = TypeVar("T")

_PAGE = 500
_SHOWN = 5
_SHORTEST_PREFIX = 8


def reading(work: Callable[[Reader], Coroutine[Any, Any, T]]) -> T:
    """Read the ledger that the settings name, whether or not its server runs."""
    settings = load_from_process()

    async def run() -> T:
        reader = await open_ledger_to_read(settings)
        try:
            return await work(reader)
        finally:
            await reader.close()

    return asyncio.run(run())


def as_builtins(value: EventRecord | FailedRun) -> dict[str, Any]:
    return {
        name: to_text(field) if isinstance(field, datetime) else field
        for name, field in asdict(value).items()
    }


async def collect(
    reader: Reader, where: EventFilter, *, order: Order, limit: int, cursor: int | None
) -> Page:
    """As many as asked for, if there are as many: a page of the reader may be short and yet not
    the last. One more is looked for, so that `next` tells the truth."""
    items: list[EventRecord] = []
    more = True
    while more and len(items) <= limit:
        wanted = min(limit + 1 - len(items), _PAGE)
        page = await reader.events(where, order=order, limit=wanted, cursor=cursor)
        items += page.items
        cursor = page.next
        more = cursor is not None
    if len(items) <= limit:
        return Page(items, None)
    return Page(items[:limit], items[limit - 1].ledger_id)


async def collect_of_source(
    reader: Reader, where: EventFilter, *, limit: int, cursor: SourceCursor | None
) -> SourcePage:
    """The same in the order of the source."""
    items: list[EventRecord] = []
    while True:
        wanted = min(limit - len(items), _PAGE)
        page = await reader.events_of_source(where, limit=wanted, cursor=cursor)
        items += page.items
        cursor = page.next
        if cursor is None or len(items) == limit:
            return SourcePage(items, cursor)


async def find(reader: Reader, wanted: str, source: str) -> EventRecord:
    """By id, by key in this source, or by the beginning of an id."""
    check_name("ID_OR_KEY", wanted)
    check_name("source", source)
    event = await reader.event(EventId(_as_uuid(wanted) or wanted))
    event = event or await reader.event_by_key(source, wanted)
    event = event or await _find_by_prefix(reader, wanted.lower())
    if event is None:
        raise CommandFailed(
            f"No event has the id {wanted}, nor, in source {source}, the key {wanted}."
        )
    return event


async def find_payload(reader: Reader, wanted: str, source: str) -> bytes:
    event = await find(reader, wanted, source)
    if (content := await reader.payload(event.id)) is None:
        raise CommandFailed(f"The event {event.id} was removed just now.")
    return content


async def find_detail(reader: Reader, wanted: str, source: str) -> EventDetail:
    event = await find(reader, wanted, source)
    if (detail := await reader.detail(event.id)) is None:
        raise CommandFailed(f"The event {event.id} was removed just now.")
    return detail


async def find_each(reader: Reader, wanted: list[str], source: str) -> list[EventRecord]:
    """Each once, however often it is named."""
    found = [await find(reader, one, source) for one in wanted]
    return list({event.id: event for event in found}.values())


async def _find_by_prefix(reader: Reader, prefix: str) -> EventRecord | None:
    if len(prefix) < _SHORTEST_PREFIX:
        return None
    ids = await reader.ids_starting(prefix, limit=_SHOWN)
    if len(ids) > 1:
        raise CommandFailed(f"Several ids begin with {prefix}: {', '.join(ids)}.")
    return await reader.event(ids[0]) if ids else None


def _as_uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None
