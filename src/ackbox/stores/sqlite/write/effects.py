"""The statements that a handler gave to `tx`, run in the commit that completes the event.

Only INSERT, UPDATE and DELETE on the user's own tables are allowed. SQLite's authorizer enforces
this when a statement is prepared. Once installed, the authorizer stays: changing it makes SQLite
prepare every statement of ours again.
"""

from collections.abc import Mapping
from datetime import datetime
from time import monotonic

import apsw
from msgspec.structs import astuple

from ackbox.errors import InvalidStatement
from ackbox.model import Done, Settlement, Statement, to_text
from ackbox.stores.named_statements import name_statement
from ackbox.stores.outcomes import follow_ups_of
from ackbox.stores.sqlite.statements import Statements, blocks
from ackbox.stores.sqlite.user_sql import (
    NOT_ALLOWED,
    RUN_BY_FULL_TEXT_INDEX,
    check_effect,
    few_parameters,
)
from ackbox.stores.sqlite.user_values import bind, find_unstorable
from ackbox.stores.sqlite.write.settlement import Run, run_of, settle

OWN_TABLES = frozenset(
    (
        "audit",
        "cursors",
        "events",
        "fingerprints",
        "inbox_migrations",
        "quarantine",
        "quarantine_usage",
        "write_probe",
        "schema_migrations",
        "sqlite_master",
        "sqlite_schema",
        "sqlite_sequence",
        "status_counts",
        "submissions",
        "tombstones",
    )
)
_SECONDS = 1.0
_STEPS = 1000
_WRITES = frozenset((apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE))
_HARMLESS = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE))
_USER_ERRORS = (
    apsw.AuthError,
    apsw.BindingsError,
    apsw.ConstraintError,
    apsw.ExecutionCompleteError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
    KeyError,  # a parameter that was not given
    OverflowError,
    TypeError,
    UnicodeError,
    ValueError,
)


class Effects:
    """Runs users' statements, each for `seconds` at most, and lets the authorizer check these
    statements but not our own."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._guarding = False

    def settle(self, sql: Statements, settlement: Settlement, now: datetime) -> set[Run]:
        """Run the statements and settle. If a statement fails, raise its error: the writer rolls
        the operation back."""
        outcome = settlement.outcome
        held = sql.fetch("held", claims=[run_of(settlement)])
        if held and isinstance(outcome, Done):  # else another run has the claim: apply nothing
            for statement in outcome.effects:
                self._run(sql.connection, statement)
            _submit(sql.connection, settlement, now)
        return settle(sql, [settlement], now)

    def _run(self, connection: apsw.Connection, statement: Statement) -> None:
        try:
            self._execute(connection, statement)
        except InvalidStatement as error:
            named = name_statement(str(error), statement)
            raise InvalidStatement(named) from error.__cause__

    def _execute(self, connection: apsw.Connection, statement: Statement) -> None:
        check_effect(statement.sql)
        params = bind(statement.params, "tx")
        end = monotonic() + self._seconds
        connection.set_progress_handler(lambda: monotonic() > end, _STEPS)
        if connection.authorizer is None:
            connection.authorizer = self._authorize
        self._guarding = True
        try:
            # Bypass the cache: a cached statement may have been prepared without the check.
            with few_parameters(connection):
                connection.execute(statement.sql, params, can_cache=False).fetchall()
        except apsw.InterruptError as error:
            took_longer = f"tx: a statement took longer than {self._seconds:g} s and was stopped."
            raise InvalidStatement(took_longer) from error
        except _USER_ERRORS as error:
            raise InvalidStatement(_reason(error, params)) from error
        finally:
            self._guarding = False
            connection.set_progress_handler(None)

    def _authorize(
        self, action: int, first: str | None, second: str | None, _db: str | None, _via: str | None
    ) -> int:
        """Deny access to our tables, also through views and CTEs: SQLite reports both in the same
        way."""
        if not self._guarding or (action, first) == RUN_BY_FULL_TEXT_INDEX:
            return apsw.SQLITE_OK
        if action in _WRITES or action == apsw.SQLITE_READ:
            return apsw.SQLITE_DENY if _is_ours((first or "").lower()) else apsw.SQLITE_OK
        return apsw.SQLITE_OK if action in _HARMLESS else apsw.SQLITE_DENY


def _submit(connection: apsw.Connection, settlement: Settlement, now: datetime) -> None:
    """Write the events that the handler sent."""
    sent = [
        (*astuple(follow_up), parent, to_text(now))
        for parent, follow_up in follow_ups_of([settlement])
    ]
    connection.executemany(blocks()["submit"], sent)


def _is_ours(table: str) -> bool:
    return table in OWN_TABLES or table.startswith("sqlite_")


def _reason(error: BaseException, params: Mapping[str, object]) -> str:
    match error:
        case apsw.AuthError():
            return NOT_ALLOWED
        case KeyError():
            return f"tx: the parameter :{error.args[0]} was not given."
        case OverflowError() | TypeError() | UnicodeError() if name := find_unstorable(params):
            return f"tx: the parameter :{name} cannot be stored: {_message(error)}."
        case _:
            return f"tx: {_message(error)}."


def _message(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
