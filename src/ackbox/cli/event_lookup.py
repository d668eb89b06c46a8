"""Read events from the ledger: whole lists, or single events by id, id prefix or key."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import asdict

from ackbox.app import choose_backend
from ackbox.config import load_from_process
from ackbox.errors import CommandFailed
from ackbox.model import (
    EventDetail,
    EventFilter,
    EventId,
    EventKey,
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


def read_ledger(read: Callable[[Reader], Coroutine[Any, Any, T]]) -> T:
    """Run `read` on the ledger that the settings name. A server may run on this ledger."""
    settings = load_from_process()

    async def run() -> T:
        async with choose_backend(settings).open_reader() as reader:
            return await read(reader)

    return asyncio.run(run())


def as_builtins(value: EventRecord | FailedRun) -> dict[str, Any]:
    return {
        name: to_text(field) if isinstance(field, datetime) else field
        for name, field in asdict(value).items()
    }


async def collect(
    reader: Reader, where: EventFilter, *, order: Order, limit: int, cursor: int | None
) -> Page:
    """Return up to `limit` events. A page of the reader may be short without being the last, so
    read on; read one event more than `limit`, so that `next` is None only at the end."""
    items: list[EventRecord] = []
    more = True
    while more and len(items) <= limit:
        size = min(limit + 1 - len(items), _PAGE)
        page = await reader.events(where, order=order, limit=size, cursor=cursor)
        items += page.items
        cursor = page.next
        more = cursor is not None
    if len(items) <= limit:
        return Page(items, None)
    return Page(items[:limit], items[limit - 1].ledger_id)


async def collect_of_source(
    reader: Reader, where: EventFilter, *, limit: int, cursor: SourceCursor | None
) -> SourcePage:
    """Return up to `limit` events in the order of their source."""
    items: list[EventRecord] = []
    while True:
        size = min(limit - len(items), _PAGE)
        page = await reader.events_of_source(where, limit=size, cursor=cursor)
        items += page.items
        cursor = page.next
        if cursor is None or len(items) == limit:
            return SourcePage(items, cursor)


async def find(reader: Reader, id_or_key: str, source: str) -> EventRecord:
    """Find an event by its id, by its key in this source, or by the beginning of its id."""
    check_name("ID_OR_KEY", id_or_key)
    check_name("source", source)
    event = await reader.event(EventId(_as_uuid(id_or_key) or id_or_key))
    event = event or await reader.event(EventKey(source, id_or_key))
    event = event or await _find_by_prefix(reader, id_or_key.lower())
    if event is None:
        raise CommandFailed(
            f"No event has the id {id_or_key}, and no event of source {source} has this key."
        )
    return event


async def find_payload(reader: Reader, id_or_key: str, source: str) -> bytes:
    event = await find(reader, id_or_key, source)
    if (content := await reader.content(event.id)) is None:
        raise CommandFailed(f"The event {event.id} was deleted just now.")
    return content.payload


async def find_detail(reader: Reader, id_or_key: str, source: str) -> EventDetail:
    event = await find(reader, id_or_key, source)
    if (detail := await reader.detail(event.id)) is None:
        raise CommandFailed(f"The event {event.id} was deleted just now.")
    return detail


async def find_each(reader: Reader, ids_or_keys: list[str], source: str) -> list[EventRecord]:
    """Find every event that is named, and return each once."""
    events = [await find(reader, name, source) for name in ids_or_keys]
    return list({event.id: event for event in events}.values())


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
