"""Show settings as text: one line each, without secrets."""

from datetime import timedelta
from typing import get_args

from pydantic import SecretStr

from ackbox.config.addresses import show_address
from ackbox.config.settings import Settings
from ackbox.quantities import show_duration, show_size

_LENGTH_LIMIT = 80


def is_secret(name: str) -> bool:
    return SecretStr in get_args(Settings.model_fields[name].annotation)


def show(name: str, value: object) -> str:
    """Return a setting's value as the reference page writes it."""
    if value is None:
        return "unset"
    if isinstance(value, SecretStr):
        return show_given(name, value.get_secret_value())
    return show_text(_format(name, value))


def show_given(name: str, value: object) -> str:
    """Return a value as it was written, valid or not."""
    text = _spell(value)
    if not text or not is_secret(name):
        return show_text(text)
    return show_text(show_address(text)) if name.endswith("_url") else "***"


def show_text(text: str) -> str:
    """Return any text on one line that is safe for every terminal."""
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    if len(text) > _LENGTH_LIMIT:
        text = text[:_LENGTH_LIMIT] + "..."
    return f'"{text}"' if not text or " " in text else text


def _format(name: str, value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case int() if name.endswith("_bytes"):
            return show_size(value)
        case float():
            return f"{value:.12g}"
        case timedelta():
            return show_duration(value)
        case _:
            return str(value)


def _spell(value: object) -> str:
    """Return the value as TOML spells it, abbreviated."""
    match value:
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 256:  # str() of a huge number raises
            return "(a huge number)"
        case dict():
            return "{...}"
        case list():
            return "[...]"
        case _:
            return str(value)
