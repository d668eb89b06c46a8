"""Read the quarantine, and release or drop its requests: in the ledger itself, or through the
server that holds it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

import httpx2
import msgspec
from msgspec.structs import asdict

from ackbox.app import build_sources, declare_sources, utc_now
from ackbox.cli.client import actor, describe_problem
from ackbox.cli.event_lookup import read_ledger
from ackbox.cli.event_operations import Ledger, run_on_ledger
from ackbox.cli.user_modules import load_inbox
from ackbox.component_config import quarantine_budget
from ackbox.errors import CommandFailed, SettingError
from ackbox.http.routes import Route
from ackbox.model import (
    Caller,
    QuarantinedRequest,
    QuarantineFilter,
    QuarantineId,
    QuarantinePage,
    QuarantineRecord,
    Receipt,
    ReleaseKind,
    ReleaseProgress,
    Submission,
    to_text,
)
from ackbox.quarantine import Drops, Releases, show_request
from ackbox.telemetry import ignore_facts

_RESULTS = {
    ReleaseKind.RELEASED: "released as event {event_id}",
    ReleaseKind.DUPLICATE: "duplicate of event {event_id}: the sender has sent it again",
    ReleaseKind.REFUSED: "refused: {detail}",
    ReleaseKind.NO_SOURCE: "refused: {detail}",
}


def read_page(where: QuarantineFilter, *, limit: int, cursor: int | None) -> QuarantinePage:
    start = None if cursor is None else QuarantineId(cursor)
    return read_ledger(lambda reader: reader.quarantine.page(where, limit=limit, cursor=start))


def read_request(number: int) -> QuarantinedRequest:
    kept = read_ledger(lambda reader: reader.quarantine.requests([QuarantineId(number)]))
    if not kept:
        raise CommandFailed(f"There is no request {number} in the quarantine.")
    return kept[0]


def as_builtins(record: QuarantineRecord) -> dict[str, Any]:
    return {
        name: to_text(field) if isinstance(field, datetime) else field
        for name, field in asdict(record).items()
    }


def describe(kept: QuarantinedRequest, target: str | None) -> dict[str, Any]:
    """Return a request without what may be secret. `target` is the inbox of the user's code, if its
    source is declared there."""
    shown = show_request(kept.request, _secret_headers(kept.record.source, target))
    return {**as_builtins(kept.record), **asdict(shown)}


def _secret_headers(source: str, target: str | None) -> AbstractSet[str] | None:
    """Return the headers that a source declares for its token or signature, or None if there is no
    valid table of this source."""
    tables = load_inbox(target).resolve().sources
    try:
        declaration = declare_sources(tables).get(source)
    except SettingError:
        return None
    return None if declaration is None else declaration.secret_headers


def release_ids(ids: Sequence[int], target: str | None) -> Mapping[int, str]:
    """Release these requests. Return for each that exists what was done."""
    numbers = [QuarantineId(number) for number in ids]

    async def here(ledger: Ledger) -> dict[int, str]:
        results = await _releases(ledger, target).release_ids(numbers, Caller(actor()))
        return {
            result.id: _RESULTS[result.kind].format(**asdict(result)) for result in results.values()
        }

    return run_on_ledger(here, lambda client, url: _release_each(client, url, numbers))


def release_matching(
    where: QuarantineFilter, target: str | None, *, dry_run: bool
) -> Mapping[str, int]:
    """Release the requests that match. Return how many there were, by result."""

    async def here(ledger: Ledger) -> dict[str, int]:
        releases = _releases(ledger, target)
        if dry_run:
            return asdict(await releases.preview(where))
        steps = releases.release_matching(where, Caller(actor()))
        return asdict([ReleaseProgress(), *[progress async for progress in steps]][-1])

    body = {**_terms(where), "dry_run": dry_run}
    return run_on_ledger(
        here, lambda client, url: _follow(client, url, Route.RELEASE_QUARANTINE, body)
    )


def drop_ids(ids: Sequence[int]) -> AbstractSet[int]:
    """Drop these requests. Return the ids of those that existed."""
    numbers = [QuarantineId(number) for number in ids]

    async def here(ledger: Ledger) -> AbstractSet[int]:
        return await _drops(ledger).drop_ids(numbers, Caller(actor()))

    return run_on_ledger(here, lambda client, url: _drop_each(client, url, numbers))


def drop_matching(where: QuarantineFilter, *, dry_run: bool) -> int:
    """Drop the requests that match. Return how many there were."""

    async def here(ledger: Ledger) -> int:
        if dry_run:
            return await _drops(ledger).preview(where)
        steps = _drops(ledger).drop_matching(where, Caller(actor()))
        return [0, *[dropped async for dropped in steps]][-1]

    body = {**_terms(where), "dry_run": dry_run}
    return run_on_ledger(
        here, lambda client, url: _follow(client, url, Route.DROP_QUARANTINE, body)["dropped"]
    )


def _releases(ledger: Ledger, target: str | None) -> Releases:
    """Return what releases requests with the sources of the settings file and of the user's
    inbox."""
    store, reader = ledger
    resolved = load_inbox(target).resolve()
    webhooks = build_sources(resolved.sources).webhooks

    async def record(submission: Submission) -> list[Receipt]:
        return await store.record([submission])

    return Releases(
        store.quarantine,
        reader,
        webhooks,
        record,
        budget=quarantine_budget(resolved.settings, len(webhooks)),
        clock=utc_now,
        observe=ignore_facts,
    )


def _drops(ledger: Ledger) -> Drops:
    store, reader = ledger
    return Drops(store.quarantine, reader, observe=ignore_facts)


def _release_each(client: httpx2.Client, url: str, ids: Sequence[QuarantineId]) -> dict[int, str]:
    done: dict[int, str] = {}
    for number in ids:
        response = client.post(Route.RELEASE_QUARANTINED.url(url, quarantine_id=str(number)))
        if response.status_code == 409:
            done[number] = f"refused: {response.json()['detail']}"
        elif response.status_code != 404:
            result = _decode(response)
            done[number] = _RESULTS[ReleaseKind(result["did"])].format(**result)
    return done


def _drop_each(client: httpx2.Client, url: str, ids: Sequence[QuarantineId]) -> set[int]:
    dropped: set[int] = set()
    for number in ids:
        response = client.post(Route.DROP_QUARANTINED.url(url, quarantine_id=str(number)))
        if response.status_code != 404:
            dropped.add(_decode(response)["id"])
    return dropped


def _follow(
    client: httpx2.Client, url: str, route: Route, body: Mapping[str, Any]
) -> dict[str, int]:
    """Read the progress lines of the server. Only a last line with `done` means success."""
    with client.stream("POST", route.url(url), json=body) as response:
        if not response.is_success:
            response.read()
            raise CommandFailed(describe_problem(response))
        for line in response.iter_lines():
            progress: dict[str, Any] = msgspec.json.decode(line)
            if "error" in progress:
                raise CommandFailed(f"The server at {url} stopped: {progress['error']}")
            if progress["done"]:
                return progress
    raise CommandFailed(f"The server at {url} stopped before the end. Run the command again.")


def _decode(response: httpx2.Response) -> dict[str, Any]:
    if not response.is_success:
        raise CommandFailed(describe_problem(response))
    content: dict[str, Any] = response.json()
    return content


def _terms(where: QuarantineFilter) -> dict[str, Any]:
    terms = {"source": where.source, "reason": where.reason}
    given = {name: value for name, value in terms.items() if value is not None}
    return given or {"all": True}
