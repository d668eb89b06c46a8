"""How long events are kept, and how far a pass came."""

from datetime import timedelta

from msgspec import Struct


class RetentionPolicy(Struct, frozen=True):
    """W11: finished events are kept for `keep` since they came, and at least for `rest` since they
    were finished; their keys are known for `remember` after that. Between tombstone and removal
    lies `wait`, so that no insert meets neither."""

    keep: timedelta
    remember: timedelta
    rest: timedelta = timedelta(hours=24)
    wait: timedelta = timedelta(minutes=1)


class Walk(Struct, frozen=True):
    """How many events were buried, and where to go on; `next` is None at the end."""

    rows: int
    next: int | None


class Removed(Struct, frozen=True):
    """How many events were deleted; whether `more` may be ripe now; whether buried ones wait."""

    rows: int
    more: bool
    waiting: bool
