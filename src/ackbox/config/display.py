"""Settings as text for people: one line each, and never a secret."""

from datetime import timedelta
from typing import get_args

from pydantic import SecretStr

from ackbox.config.addresses import show_address
from ackbox.config.settings import Settings
from ackbox.quantities import show_duration, show_size

_LONGEST_SHOWN = 80


def is_secret(name: str) -> bool:
    return SecretStr in get_args(Settings.model_fields[name].annotation)


def show(name: str, value: object) -> str:
    """A setting's value, as the reference page writes it."""
    if value is None:
        return "unset"
    if isinstance(value, SecretStr):
        return show_given(name, value.get_secret_value())
    return show_text(_format(name, value))


def show_given(name: str, value: object) -> str:
    """A value as somebody wrote it, right or wrong."""
    text = _spell(value)
    if not text or not is_secret(name):
        return show_text(text)
    return show_text(show_address(text)) if name.endswith("_url") else "***"


def show_text(text: str) -> str:
    """Any text on one line that every terminal can take."""
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "..."
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
    """The value in TOML's own spelling, in short."""
    match value:
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 256:  # str() of a large one raises
            return "(a huge number)"
        case dict():
            return "{...}"
        case list():
            return "[...]"
        case _:
            return str(value)
