"""Opening a PostgreSQL ledger: what is waited for is told, what waiting cannot mend is raised."""

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
from ackbox.stores.postgres import migrator
from ackbox.stores.postgres import store as stores
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.failures import translate
from ackbox.telemetry import StoreFailed, StoreRecovered
from support.events import envelopes, noon
from support.facts import Facts
from support.postgres import Install, PostgresServer, find_installs
from support.postgres_cli import PostgresLedger

READER = "ackbox_reader"


@pytest.fixture
def ledger(postgres_of: Callable[[Install], PostgresServer]) -> Iterator[PostgresLedger]:
    made = PostgresLedger(postgres_of(find_installs()[-1]))
    asyncio.run(migrate(made))
    yield made
    made.server.take_back(made.url)


async def migrate(ledger: PostgresLedger) -> None:
    database = Database(Address(ledger.url))
    await migrator.migrate(database)
    await database.close()


def forbid_writes(ledger: PostgresLedger, *, on: bool) -> None:
    """To sessions that begin after this."""
    value = "on" if on else "off"
    ledger.server.execute(
        f"ALTER DATABASE {ledger.database} SET default_transaction_read_only = {value}"
    )


@contextmanager
def somebody_else(ledger: PostgresLedger, *rights: str) -> Iterator[Address]:
    """Who owns nothing there, and has these rights alone."""
    ledger.execute(f"CREATE ROLE {READER} LOGIN; GRANT USAGE ON SCHEMA ackbox TO {READER}")
    for right in rights:
        ledger.execute(f"GRANT {right} TO {READER}")
    try:
        yield Address(ledger.url.replace("postgres@", f"{READER}@"))
    finally:
        ledger.execute(f"DROP OWNED BY {READER}; DROP ROLE {READER}")


async def test_what_a_start_waits_for_is_told_also_when_the_server_answers(
    postgres_of: Callable[[Install], PostgresServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Address(postgres_of(find_installs()[-1]).create_database())
    really, facts, slept = migrator.migrate, Facts(), list[float]()

    async def migrate(database: Database) -> object:
        if len(slept) < 2:
            raise StorageFull("no room")
        return await really(database)

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
def test_only_what_waiting_cannot_mend_ends_a_start(
    error: Exception, kind: type[AckboxError]
) -> None:
    assert isinstance(translate(error), kind)


async def test_a_session_that_does_not_sync_its_commits_is_refused(
    postgres_of: Callable[[Install], PostgresServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that drops what we set."""
    address = Address(postgres_of(find_installs()[-1]).create_database())
    monkeypatch.setattr(Address, "session_settings", {"synchronous_commit": "off"})
    with pytest.raises(StoreError, match="synchronous_commit"):
        await stores.open_store(address, clock=noon, observe=Facts())


# F38
async def test_a_database_that_takes_no_writes_is_waited_for(ledger: PostgresLedger) -> None:
    facts, slept = Facts(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            forbid_writes(ledger, on=False)

    forbid_writes(ledger, on=True)
    opened = await stores.open_store(Address(ledger.url), clock=noon, observe=facts, sleep=sleep)
    try:
        assert slept == [0.1, 0.2, 0.4]
        unavailable_reason, recovered = facts.of(StoreFailed, StoreRecovered)
        assert isinstance(unavailable_reason, StoreFailed)
        assert "takes no writes" in unavailable_reason.reason
        assert isinstance(recovered, StoreRecovered)
        assert opened.unavailable_reason is None
    finally:
        await opened.close()


# F38
async def test_a_database_that_stops_taking_writes_is_not_well_because_it_can_be_read(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_CHECK_SECONDS", 0.05)
    facts = Facts()
    opened = await stores.open_store(Address(ledger.url), clock=noon, observe=facts)
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
            await opened.record(envelopes(1))
        told = len(facts.of(StoreFailed))
        forbid_writes(ledger, on=False)
        await until(lambda: opened.unavailable_reason is None)
        assert len(await opened.record(envelopes(1))) == 1
        assert len(facts.of(StoreFailed)) == told
    finally:
        await opened.close()


# F38
async def test_a_connection_lost_meanwhile_does_not_make_reading_enough(
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
async def test_who_may_not_write_is_told_what_to_grant(
    ledger: PostgresLedger, rights: tuple[str, ...]
) -> None:
    with somebody_else(ledger, *rights) as address:
        open_it = partial(stores.open_store, address, clock=noon, observe=Facts())
        with pytest.raises(StoreError, match="lacks rights") as caught:
            await open_it()
        assert "\n" not in str(caught.value)
        ledger.execute(str(caught.value).partition("its owner: ")[2])
        opened = await open_it()
        try:
            assert len(await opened.record(envelopes(1))) == 1
        finally:
            await opened.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.01)
