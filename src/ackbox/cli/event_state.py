"""The state of an event in a few words, for lists and for what a command was done to."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackbox.model import EventRecord

_ERROR_SHOWN = 60
_ORDINARY = {"completed": "handled", "failed": "dead"}


def show_status(event: "EventRecord") -> str:
    """The status, with the outcome where it is not the ordinary one: `completed (ignored)`."""
    if event.status == "processing" or event.outcome in (None, _ORDINARY.get(event.status)):
        return str(event.status)
    return f"{event.status} ({event.outcome})"


def show_error(event: "EventRecord") -> str:
    """The first line of the last error, cut short; `-` if no run failed."""
    if event.last_error is None:
        return "-"
    first, *_ = event.last_error.splitlines() or [""]
    line = with_code(event.error_code or "", first)
    return line if len(line) <= _ERROR_SHOWN else line[: _ERROR_SHOWN - 3] + "..."


def with_code(code: str, error: str) -> str:
    """The text of an exception begins with its name, which is the code: say it once."""
    named = error == code or error.startswith(f"{code}: ")
    return error if named or not code else f"{code}: {error}"


def describe(event: "EventRecord") -> str:
    """What an operator wants to know of an event before it is changed."""
    attempts = f"{event.attempts} attempt{'' if event.attempts == 1 else 's'}"
    last = "" if event.last_error is None else f", last error {show_error(event)}"
    return f"{show_status(event)}, {attempts}{last}"
