"""What `ackbox doctor` says of the events that wait, alike on every database (N20)."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from ackbox.model import Finding, Verdict

MOST_PARKED = 10_000
_OLD = timedelta(hours=1)


class Backlog(Struct, frozen=True):
    """`parked` is counted up to `MOST_PARKED`."""

    pending: int
    dead_letters: int
    parked: int
    oldest_pending: datetime | None


def check_backlog(found: Backlog, now: datetime) -> Iterator[Finding]:
    yield _check_queue(found, now)
    yield _check_parked(found)
    yield _check_dead_letters(found)


def _check_queue(found: Backlog, now: datetime) -> Finding:
    waits = timedelta() if found.oldest_pending is None else now - found.oldest_pending
    shown = f"{found.pending} pending"
    if waits <= _OLD:
        return Finding("queue", Verdict.OK, shown)
    detail = f"{shown}, the oldest since {round(waits.total_seconds() / 3600)} h."
    remedy = "`ackbox events list --status pending --order oldest`, `ackbox events explain ID`"
    return Finding("queue", Verdict.WARN, detail, remedy)


def _check_parked(found: Backlog) -> Finding:
    if not found.parked:
        return Finding("parked", Verdict.OK, "no event waits for a handler to exist")
    more = " or more" if found.parked >= MOST_PARKED else ""
    detail = f"{found.parked}{more} events are parked: no handler takes them."
    remedy = "Start an instance that handles them: `ackbox events list --outcome parked`"
    return Finding("parked", Verdict.WARN, detail, remedy)


def _check_dead_letters(found: Backlog) -> Finding:
    if not found.dead_letters:
        return Finding("dead letters", Verdict.OK, "none")
    detail = f"{found.dead_letters} events failed for good."
    remedy = "`ackbox events list --status dead_letter`, then replay or discard them."
    return Finding("dead letters", Verdict.WARN, detail, remedy)
