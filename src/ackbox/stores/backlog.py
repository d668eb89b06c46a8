"""The checks of `ackbox doctor` on events that wait, the same for every database (N20)."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from ackbox.model import Finding, Verdict

MAX_PARKED = 10_000
_OLD = timedelta(hours=1)


class Backlog(Struct, frozen=True):
    """Counts of events by state. `parked` is counted up to `MAX_PARKED`."""

    pending: int
    dead_letters: int
    parked: int
    oldest_pending: datetime | None


def check_backlog(backlog: Backlog, now: datetime) -> Iterator[Finding]:
    yield _check_queue(backlog, now)
    yield _check_parked(backlog)
    yield _check_dead_letters(backlog)


def _check_queue(backlog: Backlog, now: datetime) -> Finding:
    waits = timedelta() if backlog.oldest_pending is None else now - backlog.oldest_pending
    shown = f"{backlog.pending} pending"
    if waits <= _OLD:
        return Finding("queue", Verdict.OK, shown)
    detail = f"{shown}, the oldest since {round(waits.total_seconds() / 3600)} h."
    remedy = "`ackbox events list --status pending --order oldest`, `ackbox events explain ID`"
    return Finding("queue", Verdict.WARN, detail, remedy)


def _check_parked(backlog: Backlog) -> Finding:
    if not backlog.parked:
        return Finding("parked", Verdict.OK, "no event waits for a handler to exist")
    more = " or more" if backlog.parked >= MAX_PARKED else ""
    detail = f"{backlog.parked}{more} events are parked: no handler takes them."
    remedy = "Start an instance that handles them: `ackbox events list --outcome parked`"
    return Finding("parked", Verdict.WARN, detail, remedy)


def _check_dead_letters(backlog: Backlog) -> Finding:
    if not backlog.dead_letters:
        return Finding("dead letters", Verdict.OK, "none")
    detail = f"{backlog.dead_letters} events failed for good."
    remedy = "`ackbox events list --status dead_letter`, then replay or discard them."
    return Finding("dead letters", Verdict.WARN, detail, remedy)
