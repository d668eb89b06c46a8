"""Times as people write them, and durations as people read them."""

from datetime import UTC, datetime, timedelta

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60))


def parse_moment(text: str, now: datetime) -> datetime:
    """Read a time, or a duration: `2h` is two hours ago. A time without an offset is UTC. Raises
    ValueError."""
    from ackbox.quantities import parse_duration

    try:
        return now - parse_duration(text)
    except OverflowError:
        raise ValueError("the time is before the year 1") from None
    except ValueError:
        return _parse_iso(text)


def show_age(age: timedelta) -> str:
    """Show a duration in whole units of the largest unit that fits: `3d`, `2h`, `5m` or `40s`."""
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
            "write a time like 2026-01-31T12:00, or a duration like 30m, 2h or 1d12h"
        ) from None
