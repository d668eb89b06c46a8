"""A clock that moves only when a test moves it."""

from datetime import UTC, datetime, timedelta

from ackbox.quantities import parse_duration

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class MovableClock:
    """A clock that stands still at `now` until it is moved."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start.astimezone(UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: str | timedelta) -> datetime:
        """Advance by `"10m"`, `"1h30m"` or a timedelta."""
        self.now += parse_duration(by) if isinstance(by, str) else by
        return self.now

    def move_to(self, moment: datetime) -> datetime:
        """Advance to this moment; never go back."""
        self.now = max(self.now, moment.astimezone(UTC))
        return self.now
