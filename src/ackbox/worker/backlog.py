"""Back-pressure: what the worker needs of ingest."""

from typing import Protocol


class Backlog(Protocol):
    """The number of waiting events. If it is too high, ingest refuses new events (W7)."""

    def note_claimed(self, events: int) -> None:
        """Subtract this number of events from the backlog; a negative number adds them again."""
        ...
