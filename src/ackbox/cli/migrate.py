"""`ackbox migrate`."""

from typing import Annotated

import typer


def migrate(
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit with 1 if a migration is pending."),
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the whole schema as SQL. Needs no database.")
    ] = False,
) -> None:
    """Create the ledger, or bring its schema up to date.

    `ackbox serve` and `ackbox work` do the same when they start. On SQLite, stop the server first.
    On PostgreSQL instances may run: one process applies the migrations, and other processes wait.
    """
    if check and sql:
        raise typer.BadParameter("Give either --check or --sql, not both.")
    if sql:
        _print_sql()
    elif check:
        _check()
    else:
        _apply()


def _print_sql() -> None:
    from ackbox.app import schema_sql
    from ackbox.config import load_from_process

    typer.echo(schema_sql(load_from_process()))


def _check() -> None:
    from ackbox.app import is_shared, ledger_name, pending_migrations
    from ackbox.config import load_from_process
    from ackbox.errors import SchemaMismatch

    settings = load_from_process()
    if missing := pending_migrations(settings):
        run = "Run" if is_shared(settings) else "Stop its server and run"
        raise SchemaMismatch(
            f"{ledger_name(settings)} lacks {', '.join(missing)}. {run} `ackbox migrate`, or start "
            "the server of this release, which migrates the ledger."
        )
    typer.echo(f"{ledger_name(settings)} is up to date")


def _apply() -> None:
    from ackbox.app import ledger_name, migrate_ledger
    from ackbox.config import load_from_process

    settings = load_from_process()
    applied = migrate_ledger(settings)
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo(f"{ledger_name(settings)} is up to date")
