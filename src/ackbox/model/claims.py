"""Claims on events, and the outcomes of runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NewType

from msgspec import Struct

from ackbox.model.checks import NAME_LIMIT
from ackbox.model.events import EventId
from ackbox.model.sent_events import SentEvent

WorkerId = NewType("WorkerId", str)
"""Random for each process: a restart under the same name never inherits a claim (F21)."""

SUSPECT = 2
"""The number of runs in a row that ended with the process and make an event a suspect: the event
may have ended the process. Suspects run one at a time (ADR 18)."""

CRASHED = 4
"""An event is dead-lettered as `crashed` only after at least this many runs in a row ended with the
process. Three kills from outside are therefore never enough, not even with one attempt."""

ERROR_LIMIT = 4096
TRACEBACK_LIMIT = 4096


PARAMETERS_LIMIT = 1000
"""How many parameters a statement of the user may have. To prepare a statement, SQLite compares
each name with all earlier names: 20,000 names take 5 s, in which no event is stored."""


class Statement(Struct, frozen=True):
    """One statement on a user's own tables, with its named parameters."""

    sql: str
    params: Mapping[str, object]


class Claim(Struct, frozen=True, gc=False):
    """The right to settle one run of an event until its lease expires."""

    ledger_id: int
    id: EventId
    run: int
    source: str
    idempotency_key: str
    event_type: str
    content_type: str
    headers: str | None
    attempts: int
    unsettled: int
    lane: str | None
    source_sequence: int | None
    source_emitted_at: datetime | None
    created_at: datetime
    replayed_at: datetime | None
    request_id: str | None
    payload: bytes


class Suspect(Struct, frozen=True):
    """A suspect that is due, with the `attempts` and `unsettled` that its next claim will have."""

    id: EventId
    source: str
    event_type: str
    attempts: int
    unsettled: int


class Failure(Struct, frozen=True):
    """The reason why a run failed: a text of at most 4 KiB without NUL or surrogates, a short code,
    and the traceback, bounded in the same way. `where`, such as `grant_access (app.py:12)`, is for
    the log; no store keeps it."""

    error: str
    code: str
    where: str | None = None
    traceback: str | None = None


class RetryLater(Struct, frozen=True):
    """Outcome *retry*: the event is pending again, and due after `delay`."""

    failure: Failure
    delay: timedelta


class DeadLetter(Struct, frozen=True):
    """Outcome *dead*: the event becomes a dead letter."""

    failure: Failure


class Done(Struct, frozen=True):
    """Outcome *done*. The effects and the follow-ups are written in the same commit. If they fail,
    the run failed, and its outcome is `on_effect_failure`."""

    outcome: str = "handled"
    effects: Sequence[Statement] = ()
    on_effect_failure: RetryLater | DeadLetter | None = None
    follow_ups: Sequence[SentEvent] = ()


class Release(Struct, frozen=True):
    """Outcome *release*: the event is pending again and its attempt is refunded. If `parked`, it
    waits until a handler exists; otherwise it is due after `delay`."""

    parked: bool = False
    delay: timedelta = timedelta(0)


class Snoozed(Struct, frozen=True):
    """Outcome *snoozed*: the event is pending again, due after `delay`, with its attempt refunded.
    The reason is for the log; no store keeps it."""

    delay: timedelta
    reason: str = ""


Outcome = Done | RetryLater | DeadLetter | Release | Snoozed


class Settlement(Struct, frozen=True):
    claim: Claim
    outcome: Outcome


class Caps(Struct, frozen=True):
    """Limits of the claims that one worker holds. A source may hold at most `share` claims while
    other sources wait, and at most `alone` claims otherwise (None: no limit). `held` counts the
    claims that each source holds now."""

    share: int
    held: Mapping[str, int]
    alone: int | None = None


def make_failure(
    error: str, code: str, where: str | None = None, traceback: str | None = None
) -> Failure:
    """Clean and cut the texts, so that every database can store them and every page show them."""
    shown = None if traceback is None else _clean(traceback, TRACEBACK_LIMIT)
    return Failure(_clean(error, ERROR_LIMIT), _clean(code, NAME_LIMIT), where, shown)


def _clean(text: str, limit: int) -> str:
    kept = text.replace("\0", "").encode("utf-8", "ignore")[:limit]
    return kept.decode("utf-8", "ignore")
