"""The rights that the role of a PostgreSQL ledger needs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ackbox.errors import StoreError
from ackbox.stores.postgres.admin import migrator, rights
from ackbox.stores.postgres.database import Address, Database
from support.databases.postgres_cli import Open, PostgresLedger, keys, role
from support.ledgers.events import envelope, envelopes, record_in
from support.workers.queue_worker import QueueWorker, done

MAY_READ = (
    'GRANT USAGE ON SCHEMA "user" TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA "user" TO guest'
)


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Database]:
    database = Database(address, size=1)
    try:
        yield database
    finally:
        await database.close()


async def test_a_role_that_may_not_create_the_schema_gets_the_statement_to_run(
    ledger: PostgresLedger, opened: Open
) -> None:
    with role(ledger, "guest") as url:
        with pytest.raises(StoreError, match="may not create it") as refused:
            await opened("inbox", url=url)
        statement = "CREATE SCHEMA inbox AUTHORIZATION guest"
        assert str(refused.value).endswith(statement)
        ledger.execute(statement)
        store = await opened("inbox", url=url)
        await record_in(store, [envelope("a")])
        worker = QueueWorker(store.queue)
        claim = await worker.claim_one()
        assert (await worker.settle(claim, done()))[claim.id] == done()
        assert await keys(ledger, "inbox") == ["a"]


async def test_a_role_that_may_not_use_the_schema_gets_the_statement_to_grant_it(
    ledger: PostgresLedger, opened: Open
) -> None:
    await opened()
    with role(ledger, "guest") as url:
        with pytest.raises(StoreError, match="may not use the schema ackbox") as refused:
            await opened(url=url)
        ledger.execute(str(refused.value).partition("present owner execute: ")[2])
        assert len(await record_in((await opened(url=url)), envelopes(1))) == 1


async def test_a_role_that_may_not_use_an_empty_schema_is_told_to_own_it(
    ledger: PostgresLedger, opened: Open
) -> None:
    """Grants on tables that do not exist yet would not let it create them."""
    ledger.execute("CREATE SCHEMA ackbox")
    with role(ledger, "guest") as url:
        with pytest.raises(StoreError, match="may not use the schema ackbox") as refused:
            await opened(url=url)
        ledger.execute(str(refused.value).partition("own the schema: ")[2])
        assert len(await record_in((await opened(url=url)), envelopes(1))) == 1


@pytest.mark.parametrize(
    ("before", "mark"),
    [
        ("SELECT 1", "Run as an administrator: "),
        ('CREATE SCHEMA "user"', "own the schema: "),
        (migrator.schema_sql("user"), "present owner execute: "),
        (f"{migrator.schema_sql('user')}; {MAY_READ}", "present owner execute: "),
    ],
    ids=["no schema", "an empty schema", "a ledger", "a ledger that it may only read"],
)
async def test_the_printed_remedy_can_be_run_for_a_schema_that_is_a_keyword(
    ledger: PostgresLedger, opened: Open, before: str, mark: str
) -> None:
    with role(ledger, "guest", before) as url:
        with pytest.raises(StoreError) as refused:
            await opened("user", url=url)
        ledger.execute(str(refused.value).partition(mark)[2])
        assert len(await record_in((await opened("user", url=url)), envelopes(1))) == 1


async def test_a_role_that_may_use_but_not_create_is_told_every_right_it_lacks(
    ledger: PostgresLedger, opened: Open
) -> None:
    ledger.execute("CREATE SCHEMA ackbox")
    with (
        role(ledger, "guest", "GRANT USAGE ON SCHEMA ackbox TO guest") as url,
        pytest.raises(StoreError, match=r"CREATE on that schema, .* on its sequences"),
    ):
        await opened(url=url)


async def test_a_ledger_in_another_schema_does_not_prevent_a_new_ledger(
    ledger: PostgresLedger, opened: Open
) -> None:
    await opened("first")
    async with connected(Address(ledger.url, schema="second")) as database:
        assert len(await migrator.pending(database)) == len(migrator.all_migrations())
        assert await rights.find_hindrance(database) is None


async def test_a_table_with_a_name_of_ours_prevents_a_ledger_in_its_schema(
    ledger: PostgresLedger,
) -> None:
    ledger.execute("CREATE SCHEMA second; CREATE TABLE second.events (id int)")
    async with connected(Address(ledger.url, schema="second")) as database:
        hindrance = await rights.find_hindrance(database)
    assert hindrance is not None
    assert "events" in hindrance[0]
