"""`ackbox events explain`: the reasons for the state of an event, on one screen."""

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
    id_or_key: Annotated[
        str,
        typer.Argument(metavar="ID_OR_KEY", help="An id, its beginning, or the key of an event."),
    ],
    source: Annotated[str, typer.Option("--source", help="The source of the key.")] = "webhooks",
) -> None:
    """Explain the state of an event: what it waits for, who holds it, what failed."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import find_detail, read_ledger
    from ackbox.component_config import retention_policy
    from ackbox.config import load_from_process

    detail = read_ledger(lambda reader: find_detail(reader, id_or_key, source))
    settings = load_from_process()
    context = Context(find_workers(settings), retention_policy(settings))
    print_table(("topic", "explanation"), lines(detail, utc_now(), context))
    print_last_traceback(detail)


def print_last_traceback(detail: "EventDetail") -> None:
    """Print the traceback of the last failed run, if the ledger has one."""
    if detail.errors and detail.errors[-1].traceback:
        run = detail.errors[-1]
        typer.echo(f"\ntraceback of run {run.run}:")
        for line in (run.traceback or "").split("\n"):
            typer.echo(f"  {printable(line)}".rstrip())


class Context(NamedTuple):
    """The workers that could run an event, and the policy that says how long it is kept."""

    workers: Workers
    policy: "RetentionPolicy"


def lines(detail: "EventDetail", now: datetime, context: Context) -> list[Line]:
    event = detail.event
    return [
        ("event", f"{event.id}, {event.event_type} of source {event.source}"),
        ("received", f"{_show_time(event.created_at, now)} by {event.transport}"),
        ("verified", _verified(event)),
        ("key", f"{event.idempotency_key}: {_repeats(event, now)}"),
        ("now", _state(detail, now, context)),
        *_next_run(detail, now, context.workers),
        ("runs", f"{event.run}; attempts spent since it arrived or was replayed: {event.attempts}"),
        *_crashes(detail),
        *_lane(detail),
        *_errors(detail, now),
        *_operators(detail, now),
    ]


def _verified(event: "EventRecord") -> str:
    if event.verified_by is None:
        return "no: its source has no signature"
    return f"yes, by {event.verified_by}"


def _repeats(event: "EventRecord", now: datetime) -> str:
    absorbed = event.ingest_count - 1
    if not absorbed:
        return "sent once"
    other = f", {event.conflict_count} of them with another payload" if event.conflict_count else ""
    seen = _show_time(event.last_seen_at, now)
    return f"sent {event.ingest_count} times; {absorbed} duplicates absorbed{other}, last {seen}"


def _state(detail: "EventDetail", now: datetime, context: Context) -> str:
    from ackbox.model import Status

    event = detail.event
    match event.status:
        case Status.COMPLETED:
            return f"completed {_ended(event, now)}: {_COMPLETED.get(str(event.outcome), 'done')}"
        case Status.FAILED:
            return f"failed {_ended(event, now)}: a dead letter, {_kept(detail, now, context)}"
        case Status.PROCESSING:
            return _claim(event, now, context.workers)
        case Status.PENDING:
            return _waiting(detail, now, context.workers)


_COMPLETED = {
    "handled": "its handler succeeded",
    "ignored": "no handler matches this type",
    "split": "a delivery; its items are events of their own",
    "discarded": "an operator discarded it",
}


def _ended(event: "EventRecord", now: datetime) -> str:
    return "" if event.processed_at is None else _show_time(event.processed_at, now)


def _kept(detail: "EventDetail", now: datetime, context: Context) -> str:
    """Return how long a dead letter is kept by the settings of this command. The server may have
    other settings."""
    until = context.policy.kept_until(detail.event)
    if detail.tombstoned_at is not None:
        return "and retention is deleting it"
    if until is None or until <= now:
        return "and the next pass of retention deletes it, unless it is replayed"
    return f"kept until {_show_time(until, now)} unless it is replayed or discarded"


def _claim(event: "EventRecord", now: datetime, workers: Workers) -> str:
    if event.lease_until is None or event.lease_until <= now:
        return f"processing, but the lease of {event.processor_id} has expired; {workers.sentence}"
    until = _show_time(event.lease_until, now)
    return f"processing: worker {event.processor_id} holds it until {until}"


def _waiting(detail: "EventDetail", now: datetime, workers: Workers) -> str:
    event = detail.event
    if event.outcome == "parked":
        return "pending, parked: no handler matches this type; an instance that has one unparks it"
    if detail.behind is not None:
        return "pending, behind another event of its lane"
    if event.outcome == "retry" and detail.claimable_at is not None and detail.claimable_at > now:
        return "pending: it waits for a retry after a failed run"
    if event.outcome == "snoozed" and detail.claimable_at is not None and detail.claimable_at > now:
        return "pending, snoozed: its handler asked to run later, and no attempt was spent"
    if event.outcome == "replayed":
        return f"pending: an operator replayed it; {workers.sentence}"
    return f"pending: due; {workers.sentence}"


def _next_run(detail: "EventDetail", now: datetime, workers: Workers) -> list[Line]:
    from ackbox.model import Status

    event, due = detail.event, detail.claimable_at
    if event.status is not Status.PENDING:
        return [("next run", "none")] if event.status is not Status.PROCESSING else []
    if detail.behind is not None:
        return [("next run", f"when {detail.behind.id} is completed or a dead letter")]
    if due is None:
        return [("next run", "none, unless it is unparked or replayed")]
    if due <= now:
        return [
            (
                "next run",
                "when a worker is free"
                if workers.may_run
                else "none until a process with workers runs",
            )
        ]
    if event.outcome == "snoozed":
        return [("next run", _show_time(due, now))]
    return [("next run", f"{_show_time(due, now)}, after {event.attempts} failed attempts")]


def _crashes(detail: "EventDetail") -> list[Line]:
    from ackbox.model import SUSPECT

    if not detail.unsettled:
        return []
    ended = f"{detail.unsettled} of its last runs in a row ended with the process"
    if detail.unsettled < SUSPECT:
        return [("crashes", ended)]
    return [("crashes", f"{ended}: it runs only while no other suspect runs")]


def _lane(detail: "EventDetail") -> list[Line]:
    if detail.event.lane is None:
        return []
    if detail.behind is None:
        return [("lane", f"{detail.event.lane}: no event is before it")]
    before = detail.behind
    return [("lane", f"{detail.event.lane}: waits for {before.id}, which is {before.status}")]


def _errors(detail: "EventDetail", now: datetime) -> list[Line]:
    shown = list(detail.errors)[-_ERRORS_SHOWN:]
    return [
        ("error", f"run {run.run}, {_show_time(run.at, now)}, {with_code(run.code, run.error)}")
        for run in reversed(shown)
    ]


def _operators(detail: "EventDetail", now: datetime) -> list[Line]:
    return [
        ("operator", f"{_who(entry)}, {_show_time(entry.at, now)}: {_did(entry)}")
        for entry in detail.audit[:_OPERATORS_SHOWN]
    ]


def _who(entry: "AuditEntry") -> str:
    return entry.actor if entry.peer is None else f"{entry.actor} from {entry.peer}"


def _did(entry: "AuditEntry") -> str:
    fields = (f"{name} {value}" for name, value in entry.detail.items())
    return ", ".join([entry.action, *fields])


def _show_time(moment: datetime, now: datetime) -> str:
    from ackbox.model import to_text

    away = moment - now
    shown = f"in {show_age(away)}" if away > timedelta(0) else f"{show_age(-away)} ago"
    return f"{to_text(moment)[:19]}Z ({shown})"
