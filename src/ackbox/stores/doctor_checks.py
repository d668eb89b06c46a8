"""The checks of `ackbox doctor` that are the same for every database (N20)."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from ackbox.documentation import name_page
from ackbox.errors import AckboxError, LedgerCorrupt
from ackbox.model import Finding, Status, Verdict
from ackbox.stores.migrations import Migration

MAX_PARKED = 10_000
RECOVER = f"Stop the server and restore a backup. For the steps, see {name_page('how-to/recover')}."
_OLD = timedelta(hours=1)
_UNRECORDED = timedelta(minutes=1)


class Backlog(Struct, frozen=True):
    """Counts of events by state. `parked` is counted up to `MAX_PARKED`. `oldest_submission` is the
    time when the oldest event was sent that is not recorded yet."""

    pending: int
    dead_letters: int
    parked: int
    oldest_pending: datetime | None
    oldest_submission: datetime | None = None


def check_backlog(backlog: Backlog, now: datetime) -> Iterator[Finding]:
    yield _check_queue(backlog, now)
    yield _check_parked(backlog)
    yield _check_dead_letters(backlog)
    yield _check_submissions(backlog, now)


def report_missing(name: str, missing: Sequence[Migration], known: Sequence[Migration]) -> Finding:
    """Report migrations that a ledger of this name lacks."""
    detail = f"{name} lacks {len(missing)} of {len(known)} migrations."
    remedy = "Make a backup, then run `ackbox migrate`; the next start does the same."
    return Finding("ledger", Verdict.WARN, detail, remedy)


def check_counts(rows: Iterable[tuple[str, int, int]], used_by: str) -> Finding:
    """Compare the stored count of each status with the number of its events."""
    counts = {status: (stored, counted) for status, stored, counted in rows}
    wrong = [f"{name} {a}, counted {b}" for name, (a, b) in counts.items() if a != b]
    if wrong:
        detail = f"Stored counts are wrong: {'; '.join(wrong)}."
        remedy = f"No event is lost, but {used_by} use these counts: please report it."
        return Finding("status_counts", Verdict.FAIL, detail, remedy)
    total = sum(stored for name, (stored, _) in counts.items() if name in set(Status))
    return Finding("status_counts", Verdict.OK, f"{total} events, counted one by one")


def as_failure(about: str, error: AckboxError) -> Finding:
    """Split the message of an error: the first sentence says what is wrong, the rest what to do."""
    detail, _, remedy = str(error).partition(". ")
    if isinstance(error, LedgerCorrupt):
        remedy = RECOVER
    return Finding(about, Verdict.FAIL, detail, remedy or "The server's log may say more.")


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


def _check_submissions(backlog: Backlog, now: datetime) -> Finding:
    oldest = backlog.oldest_submission
    if oldest is None or now - oldest <= _UNRECORDED:
        return Finding("submissions", Verdict.OK, "every event that was sent is recorded")
    minutes = round((now - oldest).total_seconds() / 60)
    detail = f"Events that were sent {minutes} min ago are not recorded yet."
    return Finding("submissions", Verdict.WARN, detail, "Start a server: it records them at once.")
