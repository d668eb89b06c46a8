"""Ledgers in schemas of their own: `DATABASE_URL=...?search_path=second`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from ackbox.app import utc_now
from ackbox.model import EventFilter, Order
from ackbox.stores.postgres import migrator, record, rights
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.read_horizon import last_readable, nearest
from ackbox.stores.postgres.reader import PostgresReader
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.telemetry import to_nobody
from support.backends import Server
from support.events import envelopes
from support.postgres import find_installs
from support.postgres_cli import PostgresLedger

Open = Callable[[str], Awaitable[PostgresStore]]


@pytest.fixture
def ledger(postgres_of: Server) -> Iterator[PostgresLedger]:
    made = PostgresLedger(postgres_of(find_installs()[-1]))
    made.execute('CREATE SCHEMA first; CREATE SCHEMA "Second one"')
    yield made
    made.server.take_back(made.url)


def along(ledger: PostgresLedger, path: str) -> Address:
    return Address(f"{ledger.url}?search_path={path}")


@pytest.fixture
async def opened(ledger: PostgresLedger) -> AsyncIterator[Open]:
    """The ledger that this search_path leads to."""
    async with AsyncExitStack() as stack:

        async def open_along(path: str) -> PostgresStore:
            address = along(ledger, path)
            store = await open_store(address, clock=utc_now, observe=to_nobody, notify=False)
            stack.push_async_callback(store.close)
            return store

        yield open_along


async def keys(ledger: PostgresLedger, path: str) -> list[str]:
    """Of all that are listed, as an export lists them."""
    reader = PostgresReader(along(ledger, path))
    try:
        page = await reader.events(EventFilter(), order=Order.OLDEST, limit=50)
    finally:
        await reader.close()
    return [event.idempotency_key for event in page.items]


@asynccontextmanager
async def asking(address: Address) -> AsyncIterator[Database]:
    database = Database(address, size=1)
    try:
        yield database
    finally:
        await database.close()


# --- what is being recorded in one


async def test_what_one_ledger_records_hides_nothing_of_another(
    ledger: PostgresLedger, opened: Open
) -> None:
    first, second = await opened("first"), await opened("%22Second one%22")
    await second.record(envelopes(9))
    async with first.database.transaction() as session:
        await session.fetch("record", **record._values(envelopes(2), None))
        assert await keys(ledger, "%22Second one%22") == [f"key-{n}" for n in range(9)]
        assert await keys(ledger, "first") == []


@pytest.mark.parametrize("before", [0, 1, 2**32 - 3, 2**32 - 2, 2**32, 2**40 + 7])
async def test_what_is_still_open_ends_what_can_be_read(
    ledger: PostgresLedger, opened: Open, before: int
) -> None:
    store = await opened("first")
    if before:
        ledger.execute(f"SELECT setval('first.events_ledger_id_seq', {before})")
    async with store.database.transaction() as early:
        await early.fetch("record", **record._values(envelopes(2, prefix="early"), None))
        await store.record(envelopes(2, prefix="late"))
        async with store.database.reading() as session:
            assert await last_readable(session) == before
        assert await keys(ledger, "first") == []
    async with store.database.reading() as session:
        assert await last_readable(session) == before + 4
    assert await keys(ledger, "first") == ["early-0", "early-1", "late-0", "late-1"]


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**40, 2**63 - 2**31 - 1])
def test_a_number_is_known_again_by_its_low_bits(number: int) -> None:
    """Also one that was given after the last number was read."""
    for given in (number, number + 1, number + 100_000, max(number - 1, 0)):
        assert nearest(number & 0xFFFFFFFF, given) == number


# --- where a ledger is looked for


async def test_a_ledger_is_made_in_the_first_schema_even_if_a_later_one_has_one(
    ledger: PostgresLedger, opened: Open
) -> None:
    await (await opened("public")).record(envelopes(1, prefix="public"))
    await (await opened("%22Second one%22,public")).record(envelopes(2, prefix="second"))
    assert await keys(ledger, "public") == ["public-0"]
    assert await keys(ledger, "%22Second one%22,public") == ["second-0", "second-1"]
    made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'Second one'"
    assert ledger.execute(made) == "10"


async def test_a_schema_that_is_not_there_is_passed_over(
    ledger: PostgresLedger, opened: Open
) -> None:
    await (await opened("nowhere,first")).record(envelopes(1))
    assert await keys(ledger, "first") == ["key-0"]


async def test_a_ledger_in_a_later_schema_does_not_hinder_one_in_the_first(
    ledger: PostgresLedger, opened: Open
) -> None:
    await opened("public")
    async with asking(along(ledger, "first,public")) as database:
        assert len(await migrator.pending(database)) == len(migrator.all_migrations())
        assert await rights.find_hindrance(database) is None


async def test_a_table_under_a_name_of_ours_hinders_a_ledger_in_its_schema(
    ledger: PostgresLedger,
) -> None:
    ledger.execute('CREATE TABLE "Second one".events (id int)')
    async with asking(along(ledger, "%22Second one%22,public")) as database:
        hindrance = await rights.find_hindrance(database)
    assert hindrance is not None
    assert "events" in hindrance[0]
