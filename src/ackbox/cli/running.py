"""`ackbox serve`."""

import importlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ackbox.errors import SettingError

if TYPE_CHECKING:
    from ackbox.inbox import Inbox


def serve(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:INBOX]", help="Your inbox, as in app:inbox."),
    ] = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Take events only; process none here.")
    ] = False,
) -> None:
    """Take events over HTTP and keep them.

    Settings come from the environment and ackbox.toml; `ackbox config` shows them.
    """
    inbox = _load(target)
    if no_workers:
        inbox.settings = inbox.settings.model_copy(update={"worker_count": 0})
    sys.exit(inbox.serve())


def _load(target: str | None) -> "Inbox":
    from ackbox.inbox import Inbox

    if target is None:
        return Inbox()
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise SettingError(f"{target!r} must name a module and an inbox in it, as in app:inbox.")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise
        raise SettingError(f"There is no module {module_name!r} in the current folder.") from None
    except AttributeError:
        raise SettingError(f"The module {module_name!r} has no {name!r}.") from None
    if not isinstance(found, Inbox):
        raise SettingError(f"{target} is a {type(found).__name__}, not an ackbox.Inbox.")
    return found
