"""What commands do to events: in the ledger itself if nobody holds it, else by its server."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import httpx2
import msgspec

from ackbox.app import open_ledger_to_read, open_ledger_to_write, utc_now
from ackbox.cli.client import actor, ask_holder, problem_of
from ackbox.config import Settings, load_from_process
from ackbox.errors import CommandFailed, LedgerInUse
from ackbox.model import EventFilter, EventId, to_text
from ackbox.telemetry import to_nobody
from ackbox.upkeep import Replays

T = TypeVar("T")
Report = Callable[[int, int], None]
Done = tuple[int, int]

_BATCH = 500


def replay_ids(ids: list[EventId]) -> Mapping[str, str]:
    """What was done to each that is there."""
    settings = load_from_process()
    try:
        return _here(settings, lambda replays: _replay_all(replays, ids))
    except LedgerInUse as in_use:
        return ask_holder(settings, in_use, lambda client, url: _post_each(client, url, ids))


def replay_found(where: EventFilter, rate: float, report: Report) -> Done:
    """How many were found, and how many of them got a new run."""
    settings = load_from_process()
    try:
        return _here(settings, lambda replays: _follow_here(replays, where, rate, report))
    except LedgerInUse as in_use:
        order = {**_terms(where), "rate": rate}
        return ask_holder(settings, in_use, lambda client, url: _follow(client, url, order, report))


def _here(settings: Settings, work: Callable[[Replays], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        store = await open_ledger_to_write(settings)
        reader = await open_ledger_to_read(settings)
        try:
            return await work(Replays(store, reader, clock=utc_now, observe=to_nobody))
        finally:
            await reader.close()
            await store.close()

    return asyncio.run(run())


async def _replay_all(replays: Replays, ids: list[EventId]) -> dict[str, str]:
    done: dict[str, str] = {}
    for start in range(0, len(ids), _BATCH):
        batch = await replays.these(ids[start : start + _BATCH], actor=actor())
        done.update({event_id: str(kind) for event_id, kind in batch.items()})
    return done


async def _follow_here(replays: Replays, where: EventFilter, rate: float, report: Report) -> Done:
    seen = moved = 0
    async for progress in replays.by_filter(where, actor=actor(), rate=rate):
        seen, moved = progress.seen, progress.moved
        report(seen, moved)
    return seen, moved


def _post_each(client: httpx2.Client, url: str, ids: list[EventId]) -> dict[str, str]:
    done: dict[str, str] = {}
    for event_id in ids:
        response = client.post(f"{url}/api/events/{event_id}/replay")
        if response.status_code == 409:
            done[event_id] = "running"
        elif response.status_code != 404:
            done[event_id] = _answered(response)["did"]
    return done


def _follow(client: httpx2.Client, url: str, order: dict[str, Any], report: Report) -> Done:
    """The server's own account; only its last line makes a replay complete."""
    with client.stream("POST", f"{url}/api/events/replay", json=order) as response:
        if not response.is_success:
            response.read()
            raise CommandFailed(problem_of(response))
        for line in response.iter_lines():
            said = msgspec.json.decode(line)
            if "error" in said:
                raise CommandFailed(f"{url} stopped the replay: {said['error']}")
            report(said["seen"], said["moved"])
            if "done" in said:
                return said["seen"], said["moved"]
    raise CommandFailed(f"{url} stopped before the replay was complete. Start it again.")


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
