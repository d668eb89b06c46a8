"""Values of users' parameters as PostgreSQL's driver takes them.

The driver takes only a value of the parameter's own type. Most values have the right type, so the
types are looked up only if the driver refuses a value.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import asyncpg

from ackbox.errors import InvalidStatement
from ackbox.stores.postgres.parameters import Compiled
from ackbox.stores.user_values import NO_ZONE, as_text, is_naive


async def fetch_with_values(
    connection: Any,
    compiled: Compiled,
    params: Mapping[str, object],
    seconds: float | None = None,
) -> Any:
    """Run a user's statement and return its rows. Do not use `execute`: without parameters it uses
    the simple protocol, which accepts several statements, a COMMIT among them (S11). Raise
    `InvalidStatement` for a result that Python cannot hold, such as a date before the year 1."""
    try:
        return await _fetch(connection, compiled, params, seconds)
    except asyncpg.InterfaceError:  # some are a ValueError too
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidStatement(f"the driver cannot read a result: {error}.") from error


async def _fetch(
    connection: Any, compiled: Compiled, params: Mapping[str, object], seconds: float | None
) -> Any:
    values = compiled.values(params)
    if not any(map(is_naive, values)):  # the driver would take a naive time as local time
        try:
            return await connection.fetch(compiled.sql, *values, timeout=seconds)
        except asyncpg.DataError as error:
            if not is_refused_value(error):
                raise
    statement = await connection.prepare(compiled.sql, timeout=seconds)
    types = [parameter.name for parameter in statement.get_parameters()]
    adapted = map(_adapt, compiled.names, values, types)
    return await statement.fetch(*adapted, timeout=seconds)


def is_refused_value(error: Exception) -> bool:
    """Return whether the driver refused a value. If so, the driver sent nothing, and the
    transaction can continue."""
    message = str(error.args[0]) if error.args else ""
    return error.__cause__ is not None and "query argument" in message.partition(": ")[0]


def _adapt(name: str, value: object, type_name: str) -> object:
    """Convert the value to the type of the parameter. If that is not possible, return the value as
    it is: the driver then says why. Only a `timestamp` column takes a time without a time zone."""
    adapted = value
    with suppress(ValueError, OverflowError):
        match type_name:
            case "timestamptz" | "timestamp" if isinstance(value, str):
                adapted = datetime.fromisoformat(value)
            case "date" if isinstance(value, str):
                adapted = date.fromisoformat(value)
            case "text" | "varchar" | "bpchar" if not is_naive(value):
                adapted = as_text(value)
        if type_name == "timestamp" and isinstance(adapted, datetime) and not is_naive(adapted):
            adapted = adapted.astimezone(UTC).replace(tzinfo=None)
    if type_name != "timestamp" and is_naive(adapted):
        raise InvalidStatement(f"the parameter :{name} {NO_ZONE}.")
    return adapted
