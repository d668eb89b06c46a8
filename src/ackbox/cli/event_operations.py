"""Replay and discard events: in the ledger itself, or through the server that holds it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import httpx2
import msgspec

from ackbox.app import choose_backend, utc_now
from ackbox.cli.client import actor, call_server, describe_problem
from ackbox.config import Settings, load_from_process
from ackbox.errors import CommandFailed, LedgerInUse
from ackbox.http.routes import Route
from ackbox.maintenance import Discards, ReplayProgress, Replays
from ackbox.model import EventFilter, EventId, to_text
from ackbox.ports import Reader, Store
from ackbox.telemetry import ignore_facts

T = TypeVar("T")
Report = Callable[[int, int], None]
Done = tuple[int, int]
Ledger = tuple[Store, Reader]

_BATCH = 500


def replay_ids(ids: list[EventId], *, completed: bool) -> Mapping[str, str]:
    """Replay these events. Return what was done to each event that still exists."""

    async def here(ledger: Ledger) -> dict[str, str]:
        replays = Replays(*ledger, clock=utc_now, observe=ignore_facts)
        return await _in_batches(
            ids, partial(replays.replay_ids, actor=actor(), completed=completed)
        )

    body = {"completed": True} if completed else None
    return run_on_ledger(
        here, lambda client, url: _post_each(client, url, Route.REPLAY_EVENT, ids, body)
    )


def discard_ids(ids: list[EventId]) -> Mapping[str, str]:
    """Discard these events. Return what was done to each event that still exists."""

    async def here(ledger: Ledger) -> dict[str, str]:
        discards = Discards(*ledger, clock=utc_now, observe=ignore_facts)
        return await _in_batches(ids, partial(discards.discard_ids, actor=actor()))

    return run_on_ledger(
        here, lambda client, url: _post_each(client, url, Route.DISCARD_EVENT, ids, None)
    )


def replay_matching(where: EventFilter, rate: float, report: Report) -> Done:
    """Replay the events that match. Return how many matched, and how many got a new run."""

    async def here(ledger: Ledger) -> Done:
        replays = Replays(*ledger, clock=utc_now, observe=ignore_facts)
        return await _follow_here(replays.replay_matching(where, actor=actor(), rate=rate), report)

    body = {**_terms(where), "rate": rate, "completed": not where.skip_completed}
    return run_on_ledger(
        here, lambda client, url: _follow(client, url, Route.REPLAY_EVENTS, body, report)
    )


def discard_matching(where: EventFilter, rate: float, report: Report) -> Done:
    """Discard the events that match. Return how many matched, and how many were discarded."""

    async def here(ledger: Ledger) -> Done:
        discards = Discards(*ledger, clock=utc_now, observe=ignore_facts)
        return await _follow_here(
            discards.discard_matching(where, actor=actor(), rate=rate), report
        )

    body = {**_terms(where), "rate": rate}
    return run_on_ledger(
        here, lambda client, url: _follow(client, url, Route.DISCARD_EVENTS, body, report)
    )


def run_on_ledger(
    here: Callable[[Ledger], Coroutine[Any, Any, T]], on_server: Callable[[httpx2.Client, str], T]
) -> T:
    """Open the ledger and change it here. If a server holds the ledger, call the server instead."""
    settings = load_from_process()
    try:
        return asyncio.run(_with_ledger(settings, here))
    except LedgerInUse as in_use:
        return call_server(settings, in_use, on_server)


async def _with_ledger(settings: Settings, work: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
    store = await choose_backend(settings).open_for_command(utc_now)
    try:
        return await work((store, store.reader))
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
    seen = changed = 0
    async for progress in steps:
        seen, changed = progress.seen, progress.changed
        report(seen, changed)
    return seen, changed


def _post_each(
    client: httpx2.Client, url: str, action: Route, ids: list[EventId], body: object
) -> dict[str, str]:
    done: dict[str, str] = {}
    for event_id in ids:
        response = client.post(action.url(url, event_id=event_id), json=body)
        if response.status_code == 409:
            shown = client.get(Route.SHOW_EVENT.url(url, event_id=event_id))
            event = _decode(shown)
            ended = "split" if event["outcome"] == "split" else "completed"
            done[event_id] = ended if event["status"] == "completed" else "running"
        elif response.status_code != 404:
            done[event_id] = _decode(response)["did"]
    return done


def _follow(
    client: httpx2.Client, url: str, route: Route, body: dict[str, Any], report: Report
) -> Done:
    """Report the progress lines of the server. Only a last line with `done` means success."""
    action = "replay" if route is Route.REPLAY_EVENTS else "discard"
    with client.stream("POST", route.url(url), json=body) as response:
        if not response.is_success:
            response.read()
            raise CommandFailed(describe_problem(response))
        for line in response.iter_lines():
            progress = msgspec.json.decode(line)
            if "error" in progress:
                raise CommandFailed(
                    f"The server at {url} stopped the {action}: {progress['error']}"
                )
            report(progress["seen"], progress["changed"])
            if "done" in progress:
                return progress["seen"], progress["changed"]
    raise CommandFailed(
        f"The server at {url} stopped before the {action} was complete. Run the command again."
    )


def _decode(response: httpx2.Response) -> dict[str, Any]:
    if not response.is_success:
        raise CommandFailed(describe_problem(response))
    content: dict[str, Any] = response.json()
    return content


def _terms(where: EventFilter) -> dict[str, Any]:
    status = "error" if where.retrying else where.status
    terms = {
        "status": status,
        "outcome": where.outcome,
        "source": where.source,
        "type": where.event_type,
        "error": where.error_code,
        "lane": where.lane,
        "parent": where.parent_id,
        "since": where.since and to_text(where.since),
        "until": where.until and to_text(where.until),
    }
    return {name: value for name, value in terms.items() if value is not None}
