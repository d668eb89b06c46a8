"""The state of an event in a few words, for lists and reports of changes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackbox.model import EventRecord

_ERROR_SHOWN = 60
_USUAL = {"completed": "handled", "failed": "dead"}


def show_status(event: "EventRecord") -> str:
    """Return the status, with the outcome unless the status implies it: `completed (ignored)`."""
    if event.status == "processing" or event.outcome in (None, _USUAL.get(event.status)):
        return str(event.status)
    return f"{event.status} ({event.outcome})"


def show_error(event: "EventRecord") -> str:
    """Return the first line of the last error, shortened, or `-` if no run failed."""
    if event.last_error is None:
        return "-"
    first, *_ = event.last_error.splitlines() or [""]
    line = with_code(event.error_code or "", first)
    return line if len(line) <= _ERROR_SHOWN else line[: _ERROR_SHOWN - 3] + "..."


def with_code(code: str, error: str) -> str:
    """Put the code before the error, unless the text begins with it: an exception's text often
    begins with the name of its class, which is the code."""
    named = error == code or error.startswith(f"{code}: ")
    return error if named or not code else f"{code}: {error}"


def describe(event: "EventRecord") -> str:
    """Return what an operator wants to know about an event before changing it."""
    attempts = f"{event.attempts} attempt{'' if event.attempts == 1 else 's'}"
    last = "" if event.last_error is None else f", last error {show_error(event)}"
    return f"{show_status(event)}, {attempts}{last}"
