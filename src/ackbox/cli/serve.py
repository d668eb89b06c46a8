"""`ackbox serve`, `ackbox work`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ackbox.errors import SettingError

if TYPE_CHECKING:
    from ackbox.inbox import Inbox


def serve(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:INBOX", help="Your inbox, as in app:inbox; an empty one if not given."
        ),
    ] = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Take events only; process none here.")
    ] = False,
) -> None:
    """Take events over HTTP and keep them, until SIGTERM or Ctrl-C.

    Settings come from the environment and ackbox.toml; `ackbox config` shows them.
    """
    inbox = _load(target)
    if no_workers:
        inbox.settings = inbox.settings.model_copy(update={"worker_count": 0})
    raise typer.Exit(inbox.serve())


def work(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:INBOX", help="Your inbox, as in app:inbox.")
    ],
) -> None:
    """Process events and take none, until SIGTERM or Ctrl-C. Needs PostgreSQL.

    Answers /health, /ready and /metrics. Events are taken by `ackbox serve`, which also processes
    them unless told --no-workers.
    """
    raise typer.Exit(_load(target).work())


def _load(target: str | None) -> "Inbox":
    from ackbox.cli.user_modules import import_module
    from ackbox.inbox import Inbox

    if target is None:
        return Inbox()
    module_name, _, name = target.partition(":")
    if not name.isidentifier() or not _is_module_name(module_name):
        raise SettingError(
            f"{target} must name a module, not a file, and an inbox in it, as in app:inbox."
        )
    found = getattr(import_module(module_name), name, None)
    if isinstance(found, Inbox):
        return found
    what = "is not there" if found is None else f"is of type {type(found).__name__}"
    raise SettingError(f"{target} must be an ackbox.Inbox, but it {what}.")


def _is_module_name(name: str) -> bool:
    return not name.endswith(".py") and all(part.isidentifier() for part in name.split("."))
