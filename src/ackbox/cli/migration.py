"""`ackbox migrate`."""

from typing import Annotated

import typer


def migrate(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Change nothing; exit 1 if a migration is pending. A server may run."
        ),
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the whole schema as SQL; needs no database.")
    ] = False,
) -> None:
    """Make the ledger, or bring its schema up to date. Its server must be stopped.

    `ackbox serve` does the same when it starts.
    """
    if check and sql:
        raise typer.BadParameter("--check and --sql exclude each other.")
    if sql:
        _print_sql()
    elif check:
        _check()
    else:
        _apply()


def _print_sql() -> None:
    from ackbox.app import schema_sql

    typer.echo(schema_sql())


def _check() -> None:
    from ackbox.app import pending_migrations
    from ackbox.config import load_from_process
    from ackbox.errors import SchemaMismatch

    settings = load_from_process()
    if missing := pending_migrations(settings):
        raise SchemaMismatch(
            f"{settings.db_path} lacks {', '.join(missing)}. Stop its server and run "
            "`ackbox migrate`, or start this release: it migrates at start."
        )
    typer.echo(f"{settings.db_path} is up to date")


def _apply() -> None:
    from ackbox.app import migrate_ledger
    from ackbox.config import load_from_process

    settings = load_from_process()
    applied = migrate_ledger(settings)
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo(f"{settings.db_path} is up to date")
