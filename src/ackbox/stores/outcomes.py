"""What both stores decide alike, before any SQL."""

from datetime import timedelta

from ackbox.model import (
    Again,
    Buried,
    DiscardKind,
    Done,
    Outcome,
    Settlement,
    Status,
    make_failure,
)

_LONGEST_DELAY = timedelta(days=3650)


def bounded(delay: timedelta) -> timedelta:
    """Never into the past, nor past all time."""
    return min(max(delay, timedelta(0)), _LONGEST_DELAY)


def has_effects(settlement: Settlement) -> bool:
    return isinstance(settlement.outcome, Done) and bool(settlement.outcome.effects)


def otherwise(outcome: Outcome, error: str) -> Outcome:
    """What a run comes to whose effects could not be applied."""
    match outcome:
        case Done(_, _, Again(failure, delay)):
            return Again(make_failure(error, failure.code), delay)
        case Done(_, _, Buried(failure)):
            return Buried(make_failure(error, failure.code))
        case _:
            return outcome


def discard_kind(status: Status) -> DiscardKind:
    """Decide what a discard does to an event in this state."""
    match status:
        case Status.PROCESSING:
            return DiscardKind.RUNNING
        case Status.COMPLETED:
            return DiscardKind.COMPLETED
        case Status.PENDING | Status.FAILED:
            return DiscardKind.DISCARDED
