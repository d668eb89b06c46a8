"""How long events are kept, and how far a pass came."""

from datetime import datetime, timedelta

from msgspec import Struct

from ackbox.model.events import EventRecord, Status


class RetentionPolicy(Struct, frozen=True):
    """W11: finished events are kept for `keep` since they came, and at least for `rest` since they
    were finished; their keys are known for `remember` after that. Between tombstone and removal
    lies `wait`, so that no insert meets neither. Dead letters are kept for `keep_dead_letters`
    instead, if that is given (N14)."""

    keep: timedelta
    remember: timedelta
    rest: timedelta = timedelta(hours=24)
    wait: timedelta = timedelta(minutes=1)
    keep_dead_letters: timedelta | None = None

    def keep_of(self, status: Status) -> timedelta:
        """Return how long events that ended so are kept since they came."""
        if status is Status.FAILED and self.keep_dead_letters is not None:
            return self.keep_dead_letters
        return self.keep

    def kept_until(self, event: EventRecord) -> datetime | None:
        """Return when retention may delete the event; None if it is not finished."""
        if event.processed_at is None:
            return None
        return max(event.created_at + self.keep_of(event.status), event.processed_at + self.rest)


class TombstonePass(Struct, frozen=True):
    """How many events were buried, and where to go on; `next` is None at the end."""

    rows: int
    next: int | None


class PruneResult(Struct, frozen=True):
    """How many events were deleted; whether `more` may be ripe now; whether buried ones wait."""

    rows: int
    more: bool
    waiting: bool
