"""A clock that moves only when a test moves it."""

from datetime import datetime, timedelta

from support.events import NOON


class ManualClock:
    """A clock of wall time, called like `utc_now`."""

    def __init__(self, start: datetime = NOON) -> None:
        self.now = start

    @property
    def now(self) -> datetime:
        return self._now

    @now.setter
    def now(self, moment: datetime) -> None:
        self._now = moment

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **span: float) -> datetime:
        """Move the clock, as in `advance(days=1, seconds=2)`, and return the new time."""
        self.now += timedelta(**span)
        return self.now
