"""Connections to one PostgreSQL server: opened on demand, replaced when lost, errors translated.

A call that fails because the server cannot be reached raises `Unavailable`, or `ConnectionLost` if
the call may have committed, and sets `unavailable_reason`. The next success clears it; after a
refused write, only a write does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic
from types import SimpleNamespace
from typing import Any

import asyncpg
from msgspec import Struct

from ackbox.errors import (
    OUTAGES,
    InvalidStatement,
    OutcomeUnknown,
    ReadOnly,
    Stopped,
    Unavailable,
)
from ackbox.stores.postgres.failures import (
    DRIVER_ERRORS,
    is_closed,
    is_connection_lost,
    is_undeclared_pooling,
    refused_by_driver,
    translate,
)
from ackbox.stores.postgres.parameters import compile_named
from ackbox.stores.postgres.statements import Blocks, blocks, hash_schema
from ackbox.stores.postgres.user_values import fetch_with_values, is_refused_value
from ackbox.telemetry import Observer, StoreFailed, StoreRecovered, ignore_facts

Rows = list[asyncpg.Record]

OUR_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
"""Each of our statements has one good plan, along its index. Planning a claim takes longer than
running it. While tables are new, or if statistics date from an empty queue, the server would read
and sort all due events (measured: 14 ms for a claim of 200, instead of 2.4 ms)."""
USERS_PLANS = dict.fromkeys(OUR_PLANS.keys() - {"jit"}, "DEFAULT")
"""`jit` stays off for users' SQL too. When the driver looks up a type, it switches `jit` off and
then restores the value from before, for the whole session: `on` would outlast the transaction of
the user and apply to our own statements."""
_PLANS_FOR_LISTS = {"plan_cache_mode": "force_custom_plan", "jit": "off"}
"""For lists: the best plan depends on the length of the page and on which filters are empty."""

_CONNECT_SECONDS = 5.0
_SECONDS = 15.0
_IDLE_SECONDS = 300.0
_KEPT_IDLE_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
_IDLE_IN_TRANSACTION = "2s"
_NAME_BYTES = 63
_FIRST_UNSTABLE_TYPE = 10_000
"""Types with a smaller number have the same number on every server; other numbers may change."""
_TYPES: dict[frozenset[int], Any] = {}
"""The descriptions of the server's own types, by their numbers."""
_NO_STATEMENT = SimpleNamespace(name="none was sent")
_UNREACHABLE = "The database cannot be reached, or takes no writes."
_READ_ONLY = "The database takes no writes: it is a standby, or read-only."


class Address(Struct, frozen=True):
    """A ledger: its server, its schema, and how to talk to that server.

    With `pooled`, a proxy may give each transaction another server connection, so nothing may be
    left behind in a connection.
    """

    url: str
    durability: str = "full"
    pooled: bool = False
    application: str = "ackbox"
    planned_by_value: bool = False
    schema: str = "ackbox"

    @property
    def blocks(self) -> Blocks:
        return blocks(self.schema)

    @property
    def startup_settings(self) -> dict[str, str]:
        """Return the settings that are sent when a session starts. A pooling proxy refuses most."""
        return {} if self.pooled else {"application_name": self.application_name}

    @property
    def application_name(self) -> str:
        """Return a name that tells the processes of one ledger from those of another. A long name
        is hashed: the server would truncate it, and two ledgers could get the same name."""
        name = f"{self.application}:{self.schema}"
        if len(name) <= _NAME_BYTES:
            return name
        return f"{self.application}:{hash_schema(self.schema)}"

    @property
    def session_settings(self) -> dict[str, str]:
        """Return the settings of every transaction. The server ends a transaction that idles:
        otherwise other instances could wait for ever for the locks of an instance that was frozen
        or lost."""
        return {
            "synchronous_commit": "on" if self.durability == "full" else "off",
            "idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION,
            "timezone": "UTC",
            **(_PLANS_FOR_LISTS if self.planned_by_value else OUR_PLANS),
        }

    @property
    def begin(self) -> str:
        """Return the SQL that begins a transaction. Each statement sees what was committed before
        it, whatever the server's default isolation level is."""
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        if not self.pooled:
            return begin
        return f"{begin}; {set_locally(self.session_settings)}"

    async def configure_session(self, connection: Any) -> None:
        """Configure a session of our own. Behind a pooling proxy, each transaction configures its
        session instead."""
        if not self.pooled:
            await connection.execute(self._configuration)

    @property
    def reset(self) -> str:
        """Return the SQL that undoes what a user's query left in the session, and configures the
        session again.

        It runs inside the query's transaction: behind a pooling proxy, the next transaction may get
        another session. `DISCARD ALL` cannot run inside a transaction, and would drop the prepared
        statements.
        """
        reset = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; SELECT pg_advisory_unlock_all()"
        return reset if self.pooled else f"{reset}; {self._configuration}"

    @property
    def _configuration(self) -> str:
        """Return the SQL that configures a session. The session has the search path of users' SQL
        from its start: the server plans a prepared statement again when the path differs."""
        settings = [f"SET {name} = '{value}'" for name, value in self.session_settings.items()]
        return "; ".join([*settings, self.blocks["narrow_session_path"].sql])


def set_locally(settings: Mapping[str, str]) -> str:
    """Return the SQL for settings that last until the end of the transaction."""
    return "; ".join(f"SET LOCAL {name} = {_quoted(value)}" for name, value in settings.items())


class Connection(asyncpg.Connection):
    """A connection that saves round trips of the driver.

    - It is not reset when it returns to the pool: our statements leave nothing behind in a session.
    - It asks the server for each of the server's own types once in this process. The driver asks on
      every connection, which costs four times as much as the connection itself (measured: 15 ms of
      the server's CPU for three array types, 3.7 ms for a connection).
    """

    __slots__ = ()

    def get_reset_query(self) -> str:
        return ""

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> Any:
        """Return what the driver needs to know about these types, and the statement that asked.

        This overrides a private method. A driver that no longer calls it asks again on every
        connection, which `tests/store/test_postgres_connections.py` would show.
        """
        wanted = frozenset(typeoids)
        if wanted in _TYPES:
            return _TYPES[wanted], _NO_STATEMENT
        types, statement = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]
        if max(wanted) < _FIRST_UNSTABLE_TYPE:
            _TYPES[wanted] = types
        return types, statement


async def connect(address: Address, *, seconds: float = _SECONDS) -> Connection:
    """Open a connection outside of the pool, on the running loop."""
    try:
        connection = await asyncpg.connect(
            address.url,
            timeout=_CONNECT_SECONDS,
            command_timeout=seconds,
            server_settings=address.startup_settings,
            statement_cache_size=0 if address.pooled else 200,
            connection_class=Connection,
        )
    except DRIVER_ERRORS as error:
        raise translate(error) from error
    try:
        await address.configure_session(connection)
    except BaseException as error:
        connection.terminate()
        if isinstance(error, DRIVER_ERRORS):
            raise translate(error) from error
        raise
    return connection


class Session:
    """Run named blocks on one connection. While `committing`, a lost connection leaves it unknown
    whether the server has committed."""

    committing = False

    def __init__(self, connection: Any, address: Address) -> None:
        self.connection = connection
        self.address = address
        self._blocks = address.blocks

    async def fetch(self, block: str, **values: object) -> Rows:
        compiled = self._blocks[block]
        rows: Rows = await self.connection.fetch(compiled.sql, *compiled.values(values))
        return rows

    async def fetch_one(self, block: str, **values: object) -> Any:
        rows = await self.fetch(block, **values)
        return rows[0] if rows else None

    async def execute(self, sql: str, params: Mapping[str, object], seconds: float) -> None:
        """Run a statement of the user's."""
        compiled = compile_named(sql)
        try:
            await fetch_with_values(self.connection, compiled, params, seconds)
        except (asyncpg.DataError, asyncpg.SyntaxOrAccessError) as error:
            if is_undeclared_pooling(error):  # the statement is not to blame
                raise
            raise InvalidStatement(f"{compiled.by_name(without_values(error))}.") from error

    async def execute_raw(self, sql: str) -> None:
        await self.connection.execute(sql)


class KeptConnection:
    """One connection outside of the pool, kept between calls. It is replaced when it is lost or was
    idle for long: a firewall may have dropped it, and a call would hang until it times out. All
    calls come from one event loop, one at a time, and the connection is closed with that loop."""

    def __init__(self, address: Address, *, monotonic: Callable[[], float] = monotonic) -> None:
        self._address = address
        self._monotonic = monotonic
        self._connection: Connection | None = None
        self._closing: asyncio.Task[None] | None = None
        self._used_at = 0.0

    async def fetch(self, block: str, **values: object) -> Rows:
        """Run one statement. If the connection was lost since the last call, retry on a new
        connection."""
        if self._monotonic() - self._used_at > _KEPT_IDLE_SECONDS:
            self.close()
        kept = self._connection is not None
        try:
            return await self._fetch(block, values)
        except Unavailable:
            if not kept:
                raise
        return await self._fetch(block, values)

    def close(self) -> None:
        """Drop the connection without a goodbye, which could hang."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        if self._closing is not None:
            self._closing.cancel()

    async def _connect(self) -> Connection:
        connection = await connect(self._address)
        self._closing = asyncio.create_task(_close_with_loop(connection))
        return connection

    async def _fetch(self, block: str, values: Mapping[str, object]) -> Rows:
        """Run one statement in a transaction. Without it, a pooling proxy may send the driver's
        `jit = off`, and the look-up of unknown types that follows, to different connections of the
        server, and the look-up takes seconds. If a statement fails, closing the connection rolls it
        back."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        session = Session(self._connection, self._address)
        try:
            await session.execute_raw(self._address.begin)
            rows = await session.fetch(block, **values)
            await session.execute_raw("COMMIT")
        except BaseException as error:
            self.close()
            if isinstance(error, DRIVER_ERRORS):
                raise translate(error) from error
            raise
        self._used_at = self._monotonic()
        return rows


async def _close_with_loop(connection: Connection) -> None:
    """Wait until the event loop ends, which cancels its tasks; then drop the connection."""
    try:
        await asyncio.Event().wait()
    finally:
        connection.terminate()


def without_values(error: Exception) -> str:
    """Return the message of an error without users' values. The driver's message quotes the refused
    value; the message of its `__cause__` does not; the DETAIL of the server quotes whole rows."""
    text = str(error.args[0]) if error.args else str(error)
    head, _, _ = text.partition(": ")
    return f"{head}: {error.__cause__}" if is_refused_value(error) else text.rstrip(".")


class Database:
    """A pool of at most `size` connections, each call limited to `seconds`. All calls come from one
    event loop.

    Senders read `unavailable_reason`, so it names neither the server nor the user: the log does."""

    def __init__(
        self,
        address: Address,
        observe: Observer = ignore_facts,
        *,
        size: int = 6,
        seconds: float = _SECONDS,
    ) -> None:
        self.address = address
        self.unavailable_reason: str | None = None
        self._observe = observe
        self._closed = False
        self._used = False
        self._must_write = False
        self._users_path: str | None = None
        self._pool = _pool(address, size, seconds)

    async def fetch(self, block: str, **values: object) -> Rows:
        """Run one statement, which is a transaction by itself."""
        if self.address.pooled:
            async with self.transaction() as session:
                return await session.fetch(block, **values)
        async with self._session() as session:
            session.committing = True
            return await session.fetch(block, **values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        async with self._session() as session, _transaction(session, self.address.begin):
            yield session

    @asynccontextmanager
    async def users_transaction(self) -> AsyncIterator[Session]:
        """Begin a transaction for users' SQL: its search path is the role's own, without our
        schema. The session may have another search path, which a user's function or, behind a
        pooling proxy, another client left behind. An unchanged path forces no new plan (measured: a
        settle takes 0.05 ms longer)."""
        path = self._users_path
        begin = f"{self.address.begin}; SET LOCAL search_path = {path or 'DEFAULT'}"
        async with self._session() as session, _transaction(session, begin):
            if path is None:
                (row,) = await session.fetch("narrow_transaction_path")
                self._users_path = row["search_path"] or "''"
            yield session

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        """Run several statements, each with a snapshot of its own: no long transaction."""
        if self.address.pooled:
            async with self.transaction() as session:
                yield session
        else:
            async with self._session() as session:
                yield session

    async def prove_writable(self) -> None:
        """Try a tiny write."""
        await self.fetch("write_probe")
        self._must_write = False
        self._note_recovery()

    async def close(self) -> None:
        if self._closed or not self._used:
            self._closed = True
            return
        self._closed = True
        try:
            await asyncio.wait_for(self._pool.close(), _CLOSE_SECONDS)
        except DRIVER_ERRORS:
            self._pool.terminate()

    def note_unavailable(
        self, error: Unavailable | OutcomeUnknown, *, must_write: bool = False
    ) -> None:
        """Report an outage once; report again only after recovery or when its kind changes."""
        reason = _READ_ONLY if isinstance(error, ReadOnly) else _UNREACHABLE
        self._must_write = self._must_write or must_write or isinstance(error, ReadOnly)
        if self.unavailable_reason != reason:
            self.unavailable_reason = reason
            self._observe(StoreFailed(str(error), reason))

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        self._assert_open()
        session = None
        try:
            self._used = True
            await self._pool  # opened on first use: before that, no loop runs
            async with self._pool.acquire(timeout=_CONNECT_SECONDS) as connection:
                self._assert_open()
                session = Session(connection, self.address)
                try:
                    yield session
                except asyncpg.InterfaceError as error:
                    if is_closed(connection):
                        raise
                    raise refused_by_driver(error) from error
        except DRIVER_ERRORS as error:
            self._assert_open()
            translated = translate(error, committing=session is not None and session.committing)
            if is_connection_lost(error) and isinstance(translated, OUTAGES):
                self.note_unavailable(translated)
            if isinstance(translated, ReadOnly):  # a new session may reach a server that writes
                await self._pool.expire_connections()
            raise translated from error
        self._note_recovery()

    def _assert_open(self) -> None:
        if self._closed:
            raise Stopped("The ledger is closed.")

    def _note_recovery(self) -> None:
        if self.unavailable_reason is not None and not self._must_write:
            self.unavailable_reason = None
            self._observe(StoreRecovered())


def _pool(address: Address, size: int, seconds: float) -> Any:
    return asyncpg.create_pool(
        address.url,
        min_size=0,
        max_size=size,
        timeout=_CONNECT_SECONDS,
        command_timeout=seconds,
        max_inactive_connection_lifetime=_IDLE_SECONDS,
        max_queries=1_000_000,
        server_settings=address.startup_settings,
        statement_cache_size=0 if address.pooled else 200,
        connection_class=Connection,
        init=address.configure_session,
    )


def _quoted(value: str) -> str:
    return value if value == "DEFAULT" else f"'{value}'"


@asynccontextmanager
async def _transaction(session: Session, begin: str) -> AsyncIterator[None]:
    """Commit at the end, or roll back. A BEGIN or COMMIT may also have been cancelled half way."""
    try:
        await session.execute_raw(begin)
        yield
        session.committing = not session.connection.is_closed()
        await session.execute_raw("COMMIT")
    except BaseException:
        with suppress(*DRIVER_ERRORS):  # a lost connection is rolled back by the server
            if session.connection.is_in_transaction():
                await session.execute_raw("ROLLBACK")
        raise
