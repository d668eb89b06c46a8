"""Times, as text and as an instant."""

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]
"""Wall-clock time, always aware and in UTC."""


def to_text(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`: fixed width, so that text order is time order (W9).

    The moment must be in UTC, as every time inside ackbox is.
    """
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)
