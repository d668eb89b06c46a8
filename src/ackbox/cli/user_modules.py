"""Load the user's inbox. If its module raises, show the user's own part of the traceback."""

import importlib
import sys
from collections.abc import Iterator
from traceback import TracebackException
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import typer

from ackbox.cli.output import warn
from ackbox.errors import AckboxError, StartupError

if TYPE_CHECKING:
    from ackbox.inbox import Inbox

_IMPORT_MACHINERY = ("<frozen importlib", importlib.__file__, __file__)


def load_inbox(target: str | None) -> "Inbox":
    """Return the inbox that `MODULE:INBOX` names, or an inbox without handlers if the argument is
    None."""
    from ackbox.inbox import Inbox

    if target is None:
        return Inbox()
    module_name, _, name = target.partition(":")
    if not name.isidentifier() or not _is_module_name(module_name):
        raise StartupError(
            f"{target} must name a module, not a file, and an inbox in it, as in app:inbox."
        )
    inbox = getattr(_import_module(module_name), name, None)
    if isinstance(inbox, Inbox):
        return inbox
    problem = "is not there" if inbox is None else f"is of type {type(inbox).__name__}"
    raise StartupError(f"{target} must be an ackbox.Inbox, but it {problem}.")


def _is_module_name(name: str) -> bool:
    return not name.endswith(".py") and all(part.isidentifier() for part in name.split("."))


def _import_module(name: str) -> ModuleType:
    """Import a module, from the current folder first. If there is no such module, raise an error of
    one line. If the module raises, show its traceback and end the command with 1."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except AckboxError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            _show_traceback(name, error)  # the user's module imports another that is missing
        raise StartupError(
            f"There is no module {error.name}, neither in the current folder nor installed."
        ) from None
    except Exception as error:  # noqa: BLE001 - the user's code: show what it raised, and end
        _show_traceback(name, error)


def _show_traceback(name: str, error: Exception) -> NoReturn:
    report = TracebackException.from_exception(error)
    for link in _chain(report):
        link.stack[:] = [
            frame for frame in link.stack if not frame.filename.startswith(_IMPORT_MACHINERY)
        ]
    warn(f"ackbox: The module {name} could not be imported; it failed here:")
    for line in "".join(report.format()).splitlines():
        warn(line)
    raise typer.Exit(1)


def _chain(error: TracebackException | None) -> Iterator[TracebackException]:
    """Yield an exception and the exceptions that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
