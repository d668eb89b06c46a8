"""Decisions about outcomes that both stores share, before any SQL."""

from datetime import timedelta

from ackbox.model import (
    DeadLetter,
    Done,
    Outcome,
    RetryLater,
    Settlement,
    make_failure,
)

_LONGEST_DELAY = timedelta(days=3650)


def bounded(delay: timedelta) -> timedelta:
    """Limit a delay to between zero and ten years."""
    return min(max(delay, timedelta(0)), _LONGEST_DELAY)


def has_effects(settlement: Settlement) -> bool:
    return isinstance(settlement.outcome, Done) and bool(settlement.outcome.effects)


def fallback_of(outcome: Outcome, error: str) -> Outcome:
    """Return the outcome of a run whose effects could not be applied."""
    match outcome:
        case Done(_, _, RetryLater(failure, delay)):
            return RetryLater(make_failure(error, failure.code), delay)
        case Done(_, _, DeadLetter(failure)):
            return DeadLetter(make_failure(error, failure.code))
        case _:
            return outcome
