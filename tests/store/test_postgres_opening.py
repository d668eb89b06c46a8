"""Opening a PostgreSQL ledger: report each outage and wait for its end; raise permanent errors."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import asyncpg
import pytest

from ackbox.errors import (
    AckboxError,
    ReadOnly,
    SettingError,
    StorageFull,
    StoreError,
    Unavailable,
)
from ackbox.stores.postgres import store as stores
from ackbox.stores.postgres.admin import migrator
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.failures import translate
from ackbox.telemetry import StoreFailed, StoreRecovered
from support.databases.postgres import Install, PostgresServer, find_installs
from support.databases.postgres_cli import PostgresLedger
from support.ledgers.events import envelopes, noon, record_in
from support.ledgers.facts import Facts
from support.time.polling import until

READER = "ackbox_reader"


@pytest.fixture
def ledger(postgres_of: Callable[[Install], PostgresServer]) -> Iterator[PostgresLedger]:
    made = PostgresLedger(postgres_of(find_installs()[-1]))
    asyncio.run(migrate(made))
    yield made
    made.server.recycle_database(made.url)


async def migrate(ledger: PostgresLedger) -> None:
    database = Database(Address(ledger.url))
    await migrator.migrate(database)
    await database.close()


def forbid_writes(ledger: PostgresLedger, *, on: bool) -> None:
    """Forbid or allow writes in sessions that begin after this call."""
    value = "on" if on else "off"
    ledger.server.execute(
        f"ALTER DATABASE {ledger.database} SET default_transaction_read_only = {value}"
    )


@contextmanager
def other_role(ledger: PostgresLedger, *rights: str) -> Iterator[Address]:
    """Create a role that owns nothing and has only these rights; yield its address."""
    ledger.execute(f"CREATE ROLE {READER} LOGIN; GRANT USAGE ON SCHEMA ackbox TO {READER}")
    for right in rights:
        ledger.execute(f"GRANT {right} TO {READER}")
    try:
        yield Address(ledger.url.replace("postgres@", f"{READER}@"))
    finally:
        ledger.execute(f"DROP OWNED BY {READER}; DROP ROLE {READER}")


async def test_a_start_reports_the_failure_that_it_waits_for_even_if_the_server_responds(
    postgres_of: Callable[[Install], PostgresServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Address(postgres_of(find_installs()[-1]).create_database())
    real_migrate, facts, slept = migrator.migrate, Facts(), list[float]()

    async def migrate(database: Database) -> object:
        if len(slept) < 2:
            raise StorageFull("no room")
        return await real_migrate(database)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(stores, "migrate", migrate)
    opened = await stores.open_store(address, clock=noon, observe=facts, sleep=sleep)
    await opened.close()
    assert slept == [0.1, 0.2]
    assert facts.of(StoreFailed)[0].reason == "no room"
    assert isinstance(facts.of(StoreFailed, StoreRecovered)[-1], StoreRecovered)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.InvalidPasswordError("x"), SettingError),
        (asyncpg.InvalidCatalogNameError("x"), SettingError),
        (asyncpg.UndefinedObjectError("x"), SettingError),
        (asyncpg.CantChangeRuntimeParamError("x"), SettingError),
        (asyncpg.InsufficientPrivilegeError("x"), StoreError),
        (asyncpg.CannotConnectNowError("x"), Unavailable),
        (asyncpg.TooManyConnectionsError("x"), Unavailable),
        (ConnectionRefusedError("x"), Unavailable),
    ],
)
def test_only_a_permanent_error_ends_a_start(error: Exception, kind: type[AckboxError]) -> None:
    assert isinstance(translate(error), kind)


async def test_a_session_that_does_not_sync_its_commits_is_refused(
    postgres_of: Callable[[Install], PostgresServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may drop our session settings."""
    address = Address(postgres_of(find_installs()[-1]).create_database())
    monkeypatch.setattr(Address, "session_settings", {"synchronous_commit": "off"})
    with pytest.raises(StoreError, match="synchronous_commit"):
        await stores.open_store(address, clock=noon, observe=Facts())


# F38
async def test_a_start_waits_for_a_read_only_database(ledger: PostgresLedger) -> None:
    facts, slept = Facts(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            forbid_writes(ledger, on=False)

    forbid_writes(ledger, on=True)
    opened = await stores.open_store(Address(ledger.url), clock=noon, observe=facts, sleep=sleep)
    try:
        assert slept == [0.1, 0.2, 0.4]
        failed, recovered = facts.of(StoreFailed, StoreRecovered)
        assert isinstance(failed, StoreFailed)
        assert "takes no writes" in failed.reason
        assert isinstance(recovered, StoreRecovered)
        assert opened.unavailable_reason is None
    finally:
        await opened.close()


# F38
async def test_a_database_that_becomes_read_only_stays_unavailable_while_it_can_be_read(
    ledger: PostgresLedger,
) -> None:
    facts, options = Facts(), stores.StoreOptions(check_seconds=0.05)
    opened = await stores.open_store(
        Address(ledger.url), clock=noon, observe=facts, options=options
    )
    try:
        forbid_writes(ledger, on=True)
        ledger.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await until(lambda: "no writes:" in (opened.unavailable_reason or ""))
        assert await opened.cursor("x") is None
        assert opened.unavailable_reason is not None
        with pytest.raises(Unavailable):
            await record_in(opened, envelopes(1))
        reported = len(facts.of(StoreFailed))
        forbid_writes(ledger, on=False)
        await until(lambda: opened.unavailable_reason is None)
        assert len(await record_in(opened, envelopes(1))) == 1
        assert len(facts.of(StoreFailed)) == reported
    finally:
        await opened.close()


# F38
async def test_a_lost_connection_does_not_let_a_read_end_a_read_only_outage(
    ledger: PostgresLedger,
) -> None:
    database = Database(Address(ledger.url))
    try:
        for error in (ReadOnly("no writes"), Unavailable("away")):
            database.note_unavailable(error)
        await database.fetch("server_time")
        assert database.unavailable_reason is not None
        await database.prove_writable()
        assert database.unavailable_reason is None
    finally:
        await database.close()


SELECT = "SELECT ON ALL TABLES IN SCHEMA ackbox"
WRITE = "INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ackbox"


@pytest.mark.parametrize("rights", [(SELECT,), (SELECT, WRITE)], ids=["select", "no sequence"])
async def test_a_role_without_write_rights_gets_the_statement_to_grant_them(
    ledger: PostgresLedger, rights: tuple[str, ...]
) -> None:
    with other_role(ledger, *rights) as address:
        open_it = partial(stores.open_store, address, clock=noon, observe=Facts())
        with pytest.raises(StoreError, match="lacks rights") as caught:
            await open_it()
        assert "\n" not in str(caught.value)
        ledger.execute(str(caught.value).partition("present owner execute: ")[2])
        opened = await open_it()
        try:
            assert len(await record_in(opened, envelopes(1))) == 1
        finally:
            await opened.close()
