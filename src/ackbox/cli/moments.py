"""Points in time as people write them, and spans of time as they read them."""

from datetime import UTC, datetime, timedelta

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60))


def parse_moment(text: str, now: datetime) -> datetime:
    """`2h` means two hours ago; a time is UTC unless it says otherwise. Raises ValueError."""
    from ackbox.config import parse_duration

    try:
        return now - parse_duration(text)
    except OverflowError:
        raise ValueError("that is before the year 1") from None
    except ValueError:
        return _parse_iso(text)


def show_age(age: timedelta) -> str:
    """In one unit, as precise as people ask for."""
    seconds = max(int(age.total_seconds()), 0)
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _parse_iso(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            "write a time, as 2026-01-31T12:00, or how long ago, as 30m, 2h or 1d12h"
        ) from None
