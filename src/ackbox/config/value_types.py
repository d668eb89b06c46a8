"""The allowed values of settings. A validator reads text or a TOML value, or says what is expected.

The clause in its ValueError is all the help that a user gets, so it is complete: "a whole number
from 0 to 65535 is expected". A test checks that the reference page repeats it word for word.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BeforeValidator, SecretStr

from ackbox.config.addresses import is_address
from ackbox.quantities import parse_duration, parse_size

# The resolver would read a last label that is a number as an address: `0` is 0.0.0.0.
_HOST_NAME = re.compile(r"(?:[A-Za-z0-9_-]+\.)*(?!(?:[0-9]+|0[xX][0-9A-Fa-f]*)$)[A-Za-z0-9_-]+")
HOST_EXPECTED = "an IP address or a host name, without port, is expected"
_SCHEMA_NAME = re.compile(r"(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,62}")
_VISIBLE_ASCII = re.compile(r"[!-~]{1,4096}")

_Quantity = TypeVar("_Quantity", int, timedelta)


def whole_number(low: int, high: int) -> BeforeValidator:
    def read(given: object) -> int:
        count = _read_digits(given, r"[0-9]{1,18}", int)
        if not isinstance(count, int) or isinstance(count, bool) or not low <= count <= high:
            raise ValueError(f"a whole number from {low} to {high} is expected")
        return count

    return BeforeValidator(read)


def number(low: float, high: float, *, unset: str | None = None) -> BeforeValidator:
    """Validate a number. `unset` says what None means; without `unset`, None is refused."""
    expected = f"a number from {low:g} to {high:g} is expected" + (f"; {unset}" if unset else "")

    def read(given: object) -> float | None:
        if given is None and unset is not None:
            return None
        value = _read_digits(given, r"[0-9]{1,18}(?:\.[0-9]{1,18})?", float)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not low <= value <= high
        ):
            raise ValueError(expected)
        return float(value)

    return BeforeValidator(read)


def duration(low: str, high: str) -> BeforeValidator:
    expected = f"a duration from {low} to {high} is expected"
    return _between(parse_duration(low), parse_duration(high), parse_duration, expected)


def size(low: str, high: str) -> BeforeValidator:
    expected = f"a size from {low} to {high} is expected"
    return _between(parse_size(low), parse_size(high), parse_size, expected)


def one_of(choices: object) -> BeforeValidator:
    """Validate one of the names of a Literal, in upper or lower case."""
    names: tuple[str, ...] = get_args(choices)
    listed = " or ".join([", ".join(names[:-1]), names[-1]])

    def read(given: object) -> str:
        for name in names:
            if isinstance(given, str) and given.lower() == name.lower():
                return name
        raise ValueError(f"{listed} is expected")

    return BeforeValidator(read)


def switch() -> BeforeValidator:
    def read(given: object) -> bool:
        if isinstance(given, bool):
            return given
        if isinstance(given, str) and given.lower() in {"on", "off"}:
            return given.lower() == "on"
        raise ValueError("on or off is expected")

    return BeforeValidator(read)


def file_path() -> BeforeValidator:
    def read(given: object) -> Path:
        text = str(given) if isinstance(given, str | Path) else ""
        # SQLite does not take `:memory:` and `file:...` as paths, and `:memory:` stores nothing.
        special = text == ":memory:" or text.startswith("file:")
        if special or not text.isprintable() or text.endswith("/") or Path(text).name in {"", ".."}:
            raise ValueError("the path of a file is expected")
        return Path(text)

    return BeforeValidator(read)


def folder_path() -> BeforeValidator:
    def read(given: object) -> Path | None:
        text = str(given) if isinstance(given, str | Path) else ""
        if given is not None and (not text or not text.isprintable()):
            raise ValueError("the path of a folder is expected; unset means none")
        return None if given is None else Path(text)

    return BeforeValidator(read)


def host_name() -> BeforeValidator:
    def read(given: object) -> str:
        if isinstance(given, str) and is_host(given):
            return given
        raise ValueError(HOST_EXPECTED)

    return BeforeValidator(read)


def is_host(text: str) -> bool:
    return _is_ip_address(text) or _HOST_NAME.fullmatch(text) is not None


def token() -> BeforeValidator:
    # An empty token is an error, not unset: it would silently allow every request.
    def read(given: object) -> SecretStr | None:
        text = _reveal(given)
        if text is not None and not _VISIBLE_ASCII.fullmatch(text):
            raise ValueError("visible ASCII characters, 1 to 4096, are expected; unset means none")
        return None if text is None else SecretStr(text)

    return BeforeValidator(read)


def address(*schemes: str, unset: str) -> BeforeValidator:
    # An empty address is an error too: events would silently go to another ledger.
    listed = " or ".join(f"{scheme}://" for scheme in schemes)
    return _address(schemes, f"an address with {listed} is expected; {unset}")


def site(*, unset: str) -> BeforeValidator:
    """Validate the address of a web site, to which the paths of pages are appended."""
    expected = "an address with http:// or https://, without query or fragment, is expected"
    return _address(("http", "https"), f"{expected}; {unset}", query=False)


def _address(schemes: tuple[str, ...], expected: str, *, query: bool = True) -> BeforeValidator:
    def read(given: object) -> SecretStr | None:
        text = _reveal(given)
        if text is not None and (not is_address(text, schemes) or ("?" in text and not query)):
            raise ValueError(expected)
        return None if text is None else SecretStr(text)

    return BeforeValidator(read)


def schema_name() -> BeforeValidator:
    # PostgreSQL keeps `pg_...` and `information_schema` for itself.
    def read(given: object) -> str:
        if isinstance(given, str) and _SCHEMA_NAME.fullmatch(given):
            return given
        raise ValueError(
            "a schema name of 1 to 63 lower-case letters, digits and _, no digit first, not pg_... "
            "or information_schema, is expected"
        )

    return BeforeValidator(read)


def _between(
    low: _Quantity, high: _Quantity, parse: Callable[[str], _Quantity], expected: str
) -> BeforeValidator:
    def read(given: object) -> _Quantity:
        try:
            quantity = parse(str(given)) if isinstance(given, str | int) else given
        except ValueError as problem:
            raise ValueError(f"{expected} ({problem})") from None
        if not isinstance(quantity, type(low)) or not low <= quantity <= high:
            raise ValueError(expected)
        return quantity

    return BeforeValidator(read)


def _read_digits(given: object, pattern: str, convert: Callable[[str], float]) -> object:
    return convert(given) if isinstance(given, str) and re.fullmatch(pattern, given) else given


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return (
        text.isascii() and text.isprintable() and " " not in text
    )  # a scope id may contain anything


def _reveal(given: object) -> str | None:
    if isinstance(given, SecretStr):
        return given.get_secret_value()
    return given if given is None or isinstance(given, str) else ""
