"""The retention policy, and the progress of a retention pass."""

from datetime import datetime, timedelta

from msgspec import Struct

from ackbox.model.events import EventRecord, Status


class RetentionPolicy(Struct, frozen=True):
    """W11: finished events are kept for `keep` from their arrival, and for at least
    `keep_after_end` from their end. Dead letters are kept for `keep_dead_letters` instead, if it is
    set (N14). After that, their keys stay known for `keep_keys`. A tombstone is written
    `delete_delay` before its event is deleted, so that every insert finds the event or the
    tombstone. Requests in the quarantine are kept for `keep_quarantined`."""

    keep: timedelta
    keep_keys: timedelta
    keep_after_end: timedelta = timedelta(hours=24)
    delete_delay: timedelta = timedelta(minutes=1)
    keep_dead_letters: timedelta | None = None
    keep_quarantined: timedelta = timedelta(days=7)

    def keep_of(self, status: Status) -> timedelta:
        """Return how long events with this final status are kept from their arrival."""
        if status is Status.FAILED and self.keep_dead_letters is not None:
            return self.keep_dead_letters
        return self.keep

    def kept_until(self, event: EventRecord) -> datetime | None:
        """Return when retention may delete the event; None if it is not finished."""
        if event.processed_at is None:
            return None
        return max(
            event.created_at + self.keep_of(event.status), event.processed_at + self.keep_after_end
        )


class TombstonePass(Struct, frozen=True):
    """The number of events that got a tombstone, and the cursor of the next pass; `next` is None at
    the end."""

    rows: int
    next: int | None


class PruneResult(Struct, frozen=True):
    """The number of events that were deleted. `more`: other events may be prunable now. `waiting`:
    some events with a tombstone are not prunable yet."""

    rows: int
    more: bool
    waiting: bool


class PurgeResult(Struct, frozen=True):
    """The number of tombstones and of audit rows that were deleted."""

    tombstones: int
    audit: int
