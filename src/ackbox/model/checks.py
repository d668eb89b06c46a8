"""Checks of the fields that a source sets."""

from datetime import UTC, datetime

from ackbox.errors import InvalidEvent

NAME_LIMIT = 255
SQL_INTEGER = range(-(1 << 63), 1 << 63)


def check_name(what: str, value: str) -> str:
    """Check a key, type, lane or source: 1 to 255 characters, none a control or a surrogate."""
    if not 0 < len(value) <= NAME_LIMIT:
        raise InvalidEvent(f"{what} must have 1 to {NAME_LIMIT} characters, not {len(value)}")
    if not value.isprintable() and (flaw := _flaw(value)):
        raise InvalidEvent(f"{what} must not contain {flaw}")
    return value


def check_sequence(value: int | None) -> int | None:
    if value is not None and value not in SQL_INTEGER:
        raise InvalidEvent("source_sequence must fit in 64 bits with sign")
    return value


def check_moment(value: datetime | None) -> datetime | None:
    """Return a source's own time in UTC; it must have an offset."""
    if value is None:
        return None
    if value.tzinfo is None:
        raise InvalidEvent("source_emitted_at must have an offset, as in 2026-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidEvent("source_emitted_at must lie between the years 1 and 9999") from None


def _flaw(value: str) -> str | None:
    for character in value:
        if "\ud800" <= character <= "\udfff":
            return "a lone surrogate"
        if character < " " or "\x7f" <= character <= "\x9f":
            return f"the control character U+{ord(character):04X}"
    return None
