"""The right to run an event, and what a run came to."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NewType

from msgspec import Struct

from ackbox.model.checks import NAME_LIMIT
from ackbox.model.events import EventId

WorkerId = NewType("WorkerId", str)
"""Random per process: a restart under the same name never inherits a claim (F21)."""

SUSPECT = 2
"""An event whose last runs, so many or more in a row, ended with the process may be what ended it:
suspects run one at a time (ADR 18)."""

CRASHED = 4
"""An event is dead-lettered as `crashed` when at least so many runs in a row ended with the
process. Three kills from outside therefore never dead-letter it, not even with one attempt."""

ERROR_LIMIT = 4096
TRACEBACK_LIMIT = 4096


class Statement(Struct, frozen=True):
    """One statement on a user's own tables, with its named parameters."""

    sql: str
    params: Mapping[str, object]


class Claim(Struct, frozen=True, gc=False):
    """The right to settle one run of an event, while its lease lasts."""

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
    """A suspect that is due; `attempts` and `unsettled` are what its next claim will have."""

    id: EventId
    source: str
    event_type: str
    attempts: int
    unsettled: int


class Failure(Struct, frozen=True):
    """Why a run failed: text of at most 4 KiB without NUL or surrogates, a short code, and the
    traceback, bounded in the same way. `where`, as `grant_access (app.py:12)`, is for the log; no
    store keeps it."""

    error: str
    code: str
    where: str | None = None
    traceback: str | None = None


class RetryLater(Struct, frozen=True):
    """Outcome *retry*: back to pending, due after `delay`."""

    failure: Failure
    delay: timedelta


class DeadLetter(Struct, frozen=True):
    """Outcome *dead*: a dead letter."""

    failure: Failure


class Done(Struct, frozen=True):
    """Outcome *done*. The effects commit with it; if they fail, the run failed: `otherwise`."""

    outcome: str = "handled"
    effects: Sequence[Statement] = ()
    on_effect_failure: RetryLater | DeadLetter | None = None


class Release(Struct, frozen=True):
    """Outcome *release*: handed back, attempt refunded; held until a handler exists if so said,
    else due again at once, or after `delay`."""

    parked: bool = False
    delay: timedelta = timedelta(0)


class Snoozed(Struct, frozen=True):
    """Outcome *snoozed*: back to pending, due after `delay`, attempt refunded. No store keeps the
    reason: it is for the log."""

    delay: timedelta
    reason: str = ""


Outcome = Done | RetryLater | DeadLetter | Release | Snoozed


class Settlement(Struct, frozen=True):
    claim: Claim
    outcome: Outcome


class Caps(Struct, frozen=True):
    """What a worker may take: `share` is the most one source may hold while others wait, `alone`
    while none does (None: all), `held` what each holds now."""

    share: int
    held: Mapping[str, int]
    alone: int | None = None


def make_failure(
    error: str, code: str, where: str | None = None, traceback: str | None = None
) -> Failure:
    """Cleaned and cut: it must fit into any database and any page."""
    shown = None if traceback is None else _clean(traceback, TRACEBACK_LIMIT)
    return Failure(_clean(error, ERROR_LIMIT), _clean(code, NAME_LIMIT), where, shown)


def _clean(text: str, limit: int) -> str:
    kept = text.replace("\0", "").encode("utf-8", "ignore")[:limit]
    return kept.decode("utf-8", "ignore")
