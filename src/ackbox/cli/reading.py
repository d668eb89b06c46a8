"""Reading the ledger for a command: pages put together, and events found by what people type."""

from uuid import UUID

from ackbox.errors import CommandFailed
from ackbox.model import EventFilter, EventId, EventRecord, Order, Page, check_name
from ackbox.ports import Reader

_PAGE = 500
_SHOWN = 5
_SHORTEST_PREFIX = 8


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
