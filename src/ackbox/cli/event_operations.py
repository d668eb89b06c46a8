"""What commands do to events: in the ledger itself if nobody holds it, else by its server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import httpx2
import msgspec

from ackbox.app import open_ledger_to_read, open_ledger_to_write, utc_now
from ackbox.cli.client import actor, ask_holder, problem_of
from ackbox.config import Settings, load_from_process
from ackbox.errors import CommandFailed, LedgerInUse
from ackbox.maintenance import Discards, ReplayProgress, Replays
from ackbox.model import EventFilter, EventId, to_text
from ackbox.ports import Reader, Store
from ackbox.telemetry import to_nobody

T = TypeVar("T")
Report = Callable[[int, int], None]
Done = tuple[int, int]
Ledger = tuple[Store, Reader]

_BATCH = 500


def replay_ids(ids: list[EventId], *, completed: bool) -> Mapping[str, str]:
    """What was done to each that is there."""

    async def here(ledger: Ledger) -> dict[str, str]:
        replays = Replays(*ledger, clock=utc_now, observe=to_nobody)
        return await _in_batches(
            ids, partial(replays.replay_ids, actor=actor(), completed=completed)
        )

    order = {"completed": True} if completed else None
    return _here_or_there(here, lambda client, url: _post_each(client, url, "replay", ids, order))


def discard_ids(ids: list[EventId]) -> Mapping[str, str]:
    """What was done to each that is there."""

    async def here(ledger: Ledger) -> dict[str, str]:
        discards = Discards(*ledger, clock=utc_now, observe=to_nobody)
        return await _in_batches(ids, partial(discards.discard_ids, actor=actor()))

    return _here_or_there(here, lambda client, url: _post_each(client, url, "discard", ids, None))


def replay_found(where: EventFilter, rate: float, report: Report) -> Done:
    """How many were found, and how many of them got a new run."""

    async def here(ledger: Ledger) -> Done:
        replays = Replays(*ledger, clock=utc_now, observe=to_nobody)
        return await _follow_here(replays.replay_matching(where, actor=actor(), rate=rate), report)

    order = {**_terms(where), "rate": rate, "completed": not where.skip_completed}
    return _here_or_there(here, lambda client, url: _follow(client, url, "replay", order, report))


def discard_found(where: EventFilter, rate: float, report: Report) -> Done:
    """How many were found, and how many of them were discarded."""

    async def here(ledger: Ledger) -> Done:
        discards = Discards(*ledger, clock=utc_now, observe=to_nobody)
        return await _follow_here(
            discards.discard_matching(where, actor=actor(), rate=rate), report
        )

    order = {**_terms(where), "rate": rate}
    return _here_or_there(here, lambda client, url: _follow(client, url, "discard", order, report))


def _here_or_there(
    here: Callable[[Ledger], Coroutine[Any, Any, T]], there: Callable[[httpx2.Client, str], T]
) -> T:
    """In the ledger itself if nobody holds it, else by its server."""
    settings = load_from_process()
    try:
        return asyncio.run(_with_ledger(settings, here))
    except LedgerInUse as in_use:
        return ask_holder(settings, in_use, there)


async def _with_ledger(settings: Settings, work: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
    store = await open_ledger_to_write(settings)
    try:
        reader = await open_ledger_to_read(settings)
        try:
            return await work((store, reader))
        finally:
            await reader.close()
    finally:
        await store.close()


async def _in_batches(
    ids: list[EventId], act: Callable[[list[EventId]], Awaitable[Mapping[EventId, str]]]
) -> dict[str, str]:
    done: dict[str, str] = {}
    for start in range(0, len(ids), _BATCH):
        batch = await act(ids[start : start + _BATCH])
        done.update({event_id: str(kind) for event_id, kind in batch.items()})
    return done


async def _follow_here(steps: AsyncIterator[ReplayProgress], report: Report) -> Done:
    seen = moved = 0
    async for progress in steps:
        seen, moved = progress.seen, progress.moved
        report(seen, moved)
    return seen, moved


def _post_each(
    client: httpx2.Client, url: str, action: str, ids: list[EventId], order: object
) -> dict[str, str]:
    done: dict[str, str] = {}
    for event_id in ids:
        event = f"{url}/api/events/{event_id}"
        response = client.post(f"{event}/{action}", json=order)
        if response.status_code == 409:
            status = _answered(client.get(event))["status"]
            done[event_id] = "completed" if status == "completed" else "running"
        elif response.status_code != 404:
            done[event_id] = _answered(response)["did"]
    return done


def _follow(
    client: httpx2.Client, url: str, action: str, order: dict[str, Any], report: Report
) -> Done:
    """Report what the server says; only its last line makes a replay or discard complete."""
    with client.stream("POST", f"{url}/api/events/{action}", json=order) as response:
        if not response.is_success:
            response.read()
            raise CommandFailed(problem_of(response))
        for line in response.iter_lines():
            said = msgspec.json.decode(line)
            if "error" in said:
                raise CommandFailed(f"{url} stopped the {action}: {said['error']}")
            report(said["seen"], said["moved"])
            if "done" in said:
                return said["seen"], said["moved"]
    raise CommandFailed(f"{url} stopped before the {action} was complete. Start it again.")


def _answered(response: httpx2.Response) -> dict[str, Any]:
    if not response.is_success:
        raise CommandFailed(problem_of(response))
    answer: dict[str, Any] = response.json()
    return answer


def _terms(where: EventFilter) -> dict[str, Any]:
    status = "error" if where.retrying else where.status
    terms = {
        "status": status,
        "outcome": where.outcome,
        "source": where.source,
        "type": where.event_type,
        "error": where.error_code,
        "lane": where.lane,
        "since": where.since and to_text(where.since),
        "until": where.until and to_text(where.until),
    }
    return {name: value for name, value in terms.items() if value is not None}
