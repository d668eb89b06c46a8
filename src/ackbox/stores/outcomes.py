"""Decisions about outcomes that both stores share, before any SQL."""

from collections.abc import Sequence
from datetime import timedelta

from ackbox.model import (
    DeadLetter,
    Done,
    EventId,
    Outcome,
    RetryLater,
    SentEvent,
    Settlement,
    make_failure,
)

_LONGEST_DELAY = timedelta(days=3650)


def bounded(delay: timedelta) -> timedelta:
    """Limit a delay to between zero and ten years."""
    return min(max(delay, timedelta(0)), _LONGEST_DELAY)


def has_effects(settlement: Settlement) -> bool:
    """Return whether something is written together with the outcome: statements or follow-ups."""
    outcome = settlement.outcome
    return isinstance(outcome, Done) and bool(outcome.effects or outcome.follow_ups)


def follow_ups_of(settlements: Sequence[Settlement]) -> list[tuple[EventId, SentEvent]]:
    """Return each follow-up of a completed run with the id of the event whose handler sent it."""
    return [
        (settlement.claim.id, follow_up)
        for settlement in settlements
        if isinstance(settlement.outcome, Done)
        for follow_up in settlement.outcome.follow_ups
    ]


def fallback_of(outcome: Outcome, error: str) -> Outcome:
    """Return the outcome of a run whose effects could not be applied."""
    match outcome:
        case Done(_, _, RetryLater(failure, delay)):
            return RetryLater(make_failure(error, failure.code), delay)
        case Done(_, _, DeadLetter(failure)):
            return DeadLetter(make_failure(error, failure.code))
        case _:
            return outcome
