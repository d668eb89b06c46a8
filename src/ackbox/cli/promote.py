"""`ackbox promote`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ackbox.cli.output import warn
from ackbox.cli.progress import progress_bar
from ackbox.documentation import name_page
from ackbox.errors import SettingError
from ackbox.text import printable

if TYPE_CHECKING:
    from ackbox.app.promotion import Promoted
    from ackbox.config import Settings

File = Annotated[
    Path, typer.Argument(metavar="SQLITE_FILE", help="The ledger. Stop its server first.")
]
Url = Annotated[
    str | None,
    typer.Argument(
        metavar="DATABASE_URL",
        help="An empty PostgreSQL database. Default: the setting DATABASE_URL.",
    ),
]


def promote(file: File, url: Url = None) -> None:
    """Transfer a ledger from its SQLite file into a PostgreSQL database.

    The command transfers events, known keys, cursors, audit entries and the quarantine, and then
    verifies every row. It only reads the file. If it is interrupted, run it again: it continues
    where it stopped. Until it is finished, no server starts on the database.
    """
    import asyncio

    from ackbox.config import load_from_process

    settings = load_from_process()
    target = _target(settings, url)
    from ackbox.app.promotion import promote_ledger

    with progress_bar("rows") as report:
        done = asyncio.run(promote_ledger(settings, file, target, report))
    _print_result(done, file, has_token=settings.api_token is not None)


def _target(settings: "Settings", given: str | None) -> str:
    from ackbox.config.addresses import is_address, show_address

    if given is None and settings.database_url is not None:
        return settings.database_url.get_secret_value()
    if given is None:
        raise SettingError(
            "The command line names no database, like postgresql://user@host:5432/database, and "
            "neither do the settings: set ACKBOX_DATABASE_URL."
        )
    if not is_address(given, ("postgresql", "postgres")):
        raise SettingError(
            "DATABASE_URL must be like postgresql://user@host:5432/database, not "
            f"{show_address(given)}."
        )
    return given


def _print_result(done: "Promoted", file: Path, *, has_token: bool) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in done.counts.items())
    typer.echo(printable(f"{file} is in {done.target}, verified: {counts}"))
    if done.user_tables:
        tables = ", ".join(done.user_tables)
        warn(
            f"Your own tables were not transferred: {tables}. See "
            f"{name_page('how-to/move-to-postgres')}."
        )
    if not has_token:
        warn(
            "Set ACKBOX_API_TOKEN before you start the server: a token file belongs to a SQLite "
            "ledger, so on PostgreSQL /api and /metrics stay closed without this setting."
        )
    warn(f"{file} was not changed. Move it away, so that no server is started on it again.")
