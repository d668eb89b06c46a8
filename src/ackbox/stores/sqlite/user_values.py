"""Values of users' parameters as SQLite stores them: None, int, float, str or bytes."""

from collections.abc import Mapping
from types import NoneType

from ackbox.errors import InvalidStatement
from ackbox.stores.user_values import NO_ZONE, as_text, is_naive

_STORED_AS_GIVEN = frozenset((NoneType, bool, int, float, str, bytes))


def bind(params: Mapping[str, object], caller: str) -> dict[str, object]:
    """Return the values to bind. Raise `InvalidStatement` for a time that has no text form. Other
    values that cannot be stored are left to the driver."""
    if _STORED_AS_GIVEN.issuperset(map(type, params.values())):
        return dict(params)
    return {name: _convert(name, value, caller) for name, value in params.items()}


def _convert(name: str, value: object, caller: str) -> object:
    if is_naive(value):
        raise InvalidStatement(f"{caller}: the parameter :{name} {NO_ZONE}.")
    try:
        return as_text(value)
    except OverflowError as error:  # a time near the year 1 or 9999, in another zone
        reason = f"the parameter :{name} cannot be stored: {error}"
        raise InvalidStatement(f"{caller}: {reason}.") from None


def find_unstorable(params: Mapping[str, object]) -> str | None:
    """Return the name of the first parameter whose value SQLite has no type for."""
    return next((name for name, value in params.items() if not _is_storable(value)), None)


def _is_storable(value: object) -> bool:
    match value:
        case int():
            return -(1 << 63) <= value < 1 << 63
        case str():
            return not any("\ud800" <= character <= "\udfff" for character in value)
        case _:
            return value is None or isinstance(value, float | bytes | bytearray | memoryview)
