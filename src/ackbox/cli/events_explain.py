"""`ackbox events explain`: why an event is where it is, on one screen."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ackbox.cli.event_state import with_code
from ackbox.cli.moments import show_age
from ackbox.cli.output import print_table
from ackbox.cli.workers import Workers, find_workers
from ackbox.text import printable

if TYPE_CHECKING:
    from ackbox.model import AuditEntry, EventDetail, EventRecord, RetentionPolicy

_ERRORS_SHOWN = 3
_OPERATORS_SHOWN = 3
Line = tuple[str, str]


def explain(
    wanted: Annotated[
        str,
        typer.Argument(metavar="ID_OR_KEY", help="An id, its beginning, or an idempotency key."),
    ],
    source: Annotated[str, typer.Option("--source", help="Where to look for a key.")] = "webhooks",
) -> None:
    """Say why an event is where it is: what it waits for, who holds it, what failed."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import find_detail, reading
    from ackbox.component_config import retention_policy
    from ackbox.config import load_from_process

    detail = reading(lambda reader: find_detail(reader, wanted, source))
    settings = load_from_process()
    around = Around(find_workers(settings), retention_policy(settings))
    print_table(("about", "what is known"), lines(detail, utc_now(), around))
    print_last_traceback(detail)


def print_last_traceback(detail: "EventDetail") -> None:
    """Print the traceback of the last failed run, if the ledger has one."""
    if detail.errors and detail.errors[-1].traceback:
        run = detail.errors[-1]
        typer.echo(f"\ntraceback of run {run.run}:")
        for line in (run.traceback or "").split("\n"):
            typer.echo(f"  {printable(line)}".rstrip())


class Around(NamedTuple):
    """What an event meets: who could run it, and how long it is kept."""

    workers: Workers
    policy: "RetentionPolicy"


def lines(detail: "EventDetail", now: datetime, around: Around) -> list[Line]:
    event = detail.event
    return [
        ("event", f"{event.id}, {event.event_type} of source {event.source}"),
        ("received", f"{_moment(event.created_at, now)} by {event.transport}"),
        ("verified", _verified(event)),
        ("key", f"{event.idempotency_key}: {_repeats(event, now)}"),
        ("now", _state(detail, now, around)),
        *_next_run(detail, now, around.workers),
        ("runs", f"{event.run}; attempts spent since it arrived or was replayed: {event.attempts}"),
        *_crashes(detail),
        *_lane(detail),
        *_errors(detail, now),
        *_operators(detail, now),
    ]


def _verified(event: "EventRecord") -> str:
    if event.verified_by is None:
        return "no: its source is set up without a signature"
    return f"yes, by {event.verified_by}"


def _repeats(event: "EventRecord", now: datetime) -> str:
    absorbed = event.ingest_count - 1
    if not absorbed:
        return "sent once"
    other = f", {event.conflict_count} of them with another payload" if event.conflict_count else ""
    seen = _moment(event.last_seen_at, now)
    return f"sent {event.ingest_count} times; {absorbed} duplicates absorbed{other}, last {seen}"


def _state(detail: "EventDetail", now: datetime, around: Around) -> str:
    from ackbox.model import Status

    event = detail.event
    match event.status:
        case Status.COMPLETED:
            return f"completed {_ended(event, now)}: {_COMPLETED.get(str(event.outcome), 'done')}"
        case Status.FAILED:
            return f"failed {_ended(event, now)}: a dead letter, {_kept(detail, now, around)}"
        case Status.PROCESSING:
            return _held_by(event, now, around.workers)
        case Status.PENDING:
            return _waiting(detail, now, around.workers)


_COMPLETED = {
    "handled": "its handler did its work",
    "ignored": "no handler takes this type",
    "discarded": "an operator gave it up",
}


def _ended(event: "EventRecord", now: datetime) -> str:
    return "" if event.processed_at is None else _moment(event.processed_at, now)


def _kept(detail: "EventDetail", now: datetime, around: Around) -> str:
    """By the settings of this command: a server may have others."""
    until = around.policy.kept_until(detail.event)
    if detail.tombstoned_at is not None:
        return "which retention deletes next"
    if until is None or until <= now:
        return "which the next pass of retention deletes, unless it is replayed"
    return f"kept until {_moment(until, now)} unless it is replayed or discarded"


def _held_by(event: "EventRecord", now: datetime, workers: Workers) -> str:
    if event.lease_until is None or event.lease_until <= now:
        return f"processing, but the lease of {event.processor_id} is over; {workers.said}"
    until = _moment(event.lease_until, now)
    return f"processing: worker {event.processor_id} holds it until {until}"


def _waiting(detail: "EventDetail", now: datetime, workers: Workers) -> str:
    event = detail.event
    if event.outcome == "parked":
        return "pending, parked: no handler takes this type; an instance that has one unparks it"
    if detail.behind is not None:
        return "pending, behind another event of its lane"
    if event.outcome == "retry" and detail.claimable_at is not None and detail.claimable_at > now:
        return "pending, waits for another run after one that failed"
    if event.outcome == "snoozed" and detail.claimable_at is not None and detail.claimable_at > now:
        return "pending, snoozed: its handler asked to wait, and no attempt was spent"
    if event.outcome == "replayed":
        return f"pending: an operator replayed it; {workers.said}"
    return f"pending: due; {workers.said}"


def _next_run(detail: "EventDetail", now: datetime, workers: Workers) -> list[Line]:
    from ackbox.model import Status

    event, due = detail.event, detail.claimable_at
    if event.status is not Status.PENDING:
        return [("next run", "none")] if event.status is not Status.PROCESSING else []
    if detail.behind is not None:
        return [("next run", f"when {detail.behind.id} is done or given up")]
    if due is None:
        return [("next run", "none, unless it is put back or replayed")]
    if due <= now:
        return [("next run", "when a worker is free" if workers.may_run else "none until then")]
    if event.outcome == "snoozed":
        return [("next run", _moment(due, now))]
    return [("next run", f"{_moment(due, now)}, after {event.attempts} failed attempts")]


def _crashes(detail: "EventDetail") -> list[Line]:
    from ackbox.model import SUSPECT

    if not detail.unsettled:
        return []
    ended = f"{detail.unsettled} of its last runs in a row ended with the process"
    suspect = detail.unsettled >= SUSPECT
    return [("crashes", f"{ended}: it runs while no other suspect does" if suspect else ended)]


def _lane(detail: "EventDetail") -> list[Line]:
    if detail.event.lane is None:
        return []
    if detail.behind is None:
        return [("lane", f"{detail.event.lane}: nothing is before it")]
    before = detail.behind
    return [("lane", f"{detail.event.lane}: waits for {before.id}, which is {before.status}")]


def _errors(detail: "EventDetail", now: datetime) -> list[Line]:
    shown = list(detail.errors)[-_ERRORS_SHOWN:]
    return [
        ("error", f"run {run.run}, {_moment(run.at, now)}, {with_code(run.code, run.error)}")
        for run in reversed(shown)
    ]


def _operators(detail: "EventDetail", now: datetime) -> list[Line]:
    return [
        ("operator", f"{_who(entry)}, {_moment(entry.at, now)}: {_did(entry)}")
        for entry in detail.audit[:_OPERATORS_SHOWN]
    ]


def _who(entry: "AuditEntry") -> str:
    return entry.actor if entry.peer is None else f"{entry.actor} from {entry.peer}"


def _did(entry: "AuditEntry") -> str:
    said = (f"{name} {value}" for name, value in entry.detail.items())
    return ", ".join([entry.action, *said])


def _moment(moment: datetime, now: datetime) -> str:
    from ackbox.model import to_text

    away = moment - now
    shown = f"in {show_age(away)}" if away > timedelta(0) else f"{show_age(-away)} ago"
    return f"{to_text(moment)[:19]}Z ({shown})"
