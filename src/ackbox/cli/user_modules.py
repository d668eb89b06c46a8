"""Import the module of a user. If that fails, show the user's own part of the traceback."""

import importlib
import sys
from collections.abc import Iterator
from traceback import TracebackException
from types import ModuleType
from typing import NoReturn

import typer

from ackbox.cli.output import warn
from ackbox.errors import AckboxError, SettingError

_IMPORT_MACHINERY = ("<frozen importlib", importlib.__file__, __file__)


def import_module(name: str) -> ModuleType:
    """Import from the current folder first. A module that is not there is an error of one line;
    what a module raises is shown with its traceback, and ends the command with 1."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except AckboxError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            _show(name, error)  # a module of theirs lacks another one
        raise SettingError(
            f"There is no module {error.name} in the current folder, nor among what is installed."
        ) from None
    except Exception as error:  # noqa: BLE001 - code of the user's: shown, and the command ends
        _show(name, error)


def _show(name: str, error: Exception) -> NoReturn:
    shown = TracebackException.from_exception(error)
    for one in _linked(shown):
        one.stack[:] = [at for at in one.stack if not at.filename.startswith(_IMPORT_MACHINERY)]
    warn(f"ackbox: The module {name} could not be imported; this is where it failed:")
    for line in "".join(shown.format()).splitlines():
        warn(line)
    raise typer.Exit(1)


def _linked(error: TracebackException | None) -> Iterator[TracebackException]:
    """An exception and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
