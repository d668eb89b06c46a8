"""`ackbox migrate`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ackbox.cli.user_tables import load_tables, pending_of_user

if TYPE_CHECKING:
    from ackbox.config import Settings
    from ackbox.model import UserTables


def migrate(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:INBOX",
            help="Your inbox, such as app:inbox: create and migrate its own tables too.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit with 1 if a migration is pending."),
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print ackbox's own schema as SQL. Needs no database.")
    ] = False,
) -> None:
    """Create the ledger, or bring its schema up to date.

    `ackbox serve` and `ackbox work` do the same when they start. On SQLite, stop the server first.
    On PostgreSQL instances may run: one process applies the migrations, and other processes wait.
    """
    if check and sql:
        raise typer.BadParameter("Give either --check or --sql, not both.")
    if sql and target is not None:
        raise typer.BadParameter("--sql prints ackbox's own schema, and takes no inbox.")
    if sql:
        _print_sql()
    elif check:
        _check(target)
    else:
        _apply(target)


def _print_sql() -> None:
    from ackbox.app import choose_admin
    from ackbox.config import load_from_process

    typer.echo(choose_admin(load_from_process()).schema_sql())


def _check(target: str | None) -> None:
    from ackbox.app import Shared, choose_admin, choose_backend
    from ackbox.errors import SchemaMismatch

    resolved, tables = load_tables(target)
    settings = resolved.settings
    admin, ledger = choose_admin(settings), choose_backend(settings).describe().name
    if missing := admin.pending_migrations() or pending_of_user(settings, tables):
        run = "Run" if isinstance(admin.holder(), Shared) else "Stop its server and run"
        command = "ackbox migrate" if target is None else f"ackbox migrate {target}"
        raise SchemaMismatch(
            f"{ledger} lacks {', '.join(missing)}. {run} `{command}`, or start "
            "the server of this release, which migrates the ledger."
        )
    typer.echo(f"{ledger} is up to date")


def _apply(target: str | None) -> None:
    from ackbox.app import choose_admin, choose_backend

    resolved, tables = load_tables(target)
    settings = resolved.settings
    applied = choose_admin(settings).migrate()
    if target is not None:
        applied += _change_users_tables(settings, tables)
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo(f"{choose_backend(settings).describe().name} is up to date")


def _change_users_tables(settings: "Settings", tables: "UserTables") -> list[str]:
    """Do what a start does: create the user's tables, and apply the user's migrations."""
    import asyncio

    from ackbox.app import choose_backend, utc_now

    async def change() -> list[str]:
        store = await choose_backend(settings).open_for_command(utc_now)
        try:
            return await store.apply_tables(tables.schemas, tables.migrations)
        finally:
            await store.close()

    return asyncio.run(change())
