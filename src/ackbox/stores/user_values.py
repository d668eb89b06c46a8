"""Values of users' parameters for which a database may have no type of its own (N13)."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from ackbox.model import to_text

NO_ZONE = "is a datetime without a time zone: give one that has a zone, as datetime.now(UTC) has"


def is_naive(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is None


def as_text(value: object) -> object:
    """Return the text that a text column holds for this value, the same in both databases. Return
    any other value as it is. A datetime must have a time zone."""
    match value:
        case datetime():
            return to_text(value.astimezone(UTC))
        case date():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case _:
            return value
