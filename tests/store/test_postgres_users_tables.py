"""Users' tables beside a PostgreSQL ledger, and the search path that finds them."""

import asyncio

import pytest
from pydantic import SecretStr

from ackbox import Inbox
from ackbox.app import App
from ackbox.config import Settings
from ackbox.errors import SettingError
from ackbox.model import EventFilter, Order, Status
from ackbox.stores.postgres.store import PostgresStore
from ackbox.telemetry import StoreFailed
from support.databases.postgres_cli import Open, PostgresLedger, reading, role
from support.ledgers.events import envelope, noon, record_in
from support.ledgers.facts import Facts
from support.workers.queue_worker import QueueWorker, done


async def assert_tables_named_like_ours_work(store: PostgresStore) -> None:
    """Create users' tables `events`, `audit` and `lanes`, and use them through `tx` and reads."""
    await store.apply_tables(
        [
            "CREATE TABLE events (events text)",
            "CREATE TABLE audit (id int PRIMARY KEY, lanes text)",
            "CREATE TABLE lanes (audit int REFERENCES audit, events bigint)",
        ]
    )
    await record_in(store, [envelope("a", lane="one")])
    worker = QueueWorker(store.queue)
    claim = await worker.claim_one()
    outcome = done(
        "INSERT INTO events VALUES (:key)",
        "INSERT INTO audit (id, lanes) VALUES (1, :key)",
        "INSERT INTO lanes SELECT audit.id, 7 FROM audit, events WHERE events.events = audit.lanes",
        key="mine",
    )
    assert (await worker.settle(claim, outcome))[claim.id] == outcome
    async with reading(store.database.address) as reader:
        sql = "SELECT events.*, lanes FROM events, audit JOIN lanes ON audit = id WHERE id = :id"
        rows = await reader.query(sql, {"id": 1})
        assert [row["events"] for row in rows] == ["mine"]
        assert (await reader.stats(noon())).counts[Status.COMPLETED] == 1
        assert len((await reader.events(EventFilter(), order=Order.NEWEST, limit=9)).items) == 1


@pytest.mark.parametrize("pooled", [False, True], ids=["session", "transaction"])
async def test_users_tables_may_have_the_names_of_ours(opened: Open, pooled: bool) -> None:
    await assert_tables_named_like_ours_work(await opened(pooled=pooled))


@pytest.mark.parametrize("pooled", [False, True], ids=["session", "transaction"])
async def test_users_sql_of_a_role_named_ackbox_does_not_find_our_tables(
    ledger: PostgresLedger, opened: Open, pooled: bool
) -> None:
    """The "$user" in the search path of this role is our schema."""
    rights_of_role = f"GRANT CREATE ON DATABASE {ledger.database} TO ackbox"
    with role(ledger, "ackbox", rights_of_role, "GRANT CREATE ON SCHEMA public TO ackbox") as url:
        await assert_tables_named_like_ours_work(await opened(url=url, pooled=pooled))
        assert ledger.execute("SELECT count(*) FROM public.events") == "1"
        assert ledger.execute("SELECT count(*) FROM ackbox.events") == "1"
        assert ledger.execute("SELECT count(*) FROM public.lanes") == "1"


@pytest.mark.parametrize("pooled", [False, True], ids=["session", "transaction"])
@pytest.mark.parametrize("other_first", [False, True])
async def test_users_sql_does_not_find_the_tables_of_another_ledger(
    ledger: PostgresLedger, opened: Open, pooled: bool, other_first: bool
) -> None:
    """The "$user" in the search path of the role `ackbox` is the schema of the other ledger, which
    may be there already or be created later."""
    rights_of_role = f"GRANT CREATE ON DATABASE {ledger.database} TO ackbox"
    with role(ledger, "ackbox", rights_of_role, "GRANT CREATE ON SCHEMA public TO ackbox") as url:
        if other_first:
            await opened("ackbox", url=url)
        store = await opened("billing", url=url, pooled=pooled)
        await store.apply_tables([])  # now it knows the search path
        if not other_first:
            await opened("ackbox", url=url)
        await assert_tables_named_like_ours_work(store)
        assert ledger.execute("SELECT count(*) FROM public.events") == "1"
        assert ledger.execute("SELECT count(*) FROM ackbox.events") == "0"


@pytest.mark.parametrize("pooled", [False, True], ids=["session", "transaction"])
@pytest.mark.parametrize(
    "search_path", ["ackbox, shop", 'shop, "ackbox"', '"$user", ackbox, shop, public, Nowhere']
)
async def test_our_schema_is_taken_out_of_the_search_path(
    ledger: PostgresLedger, opened: Open, search_path: str, pooled: bool
) -> None:
    ledger.execute("CREATE SCHEMA shop")
    ledger.execute(f"ALTER DATABASE {ledger.database} SET search_path = {search_path}")
    await assert_tables_named_like_ours_work(await opened(pooled=pooled))
    assert ledger.execute("SELECT count(*) FROM shop.events") == "1"


async def test_a_schema_that_users_create_later_is_in_their_path(
    ledger: PostgresLedger, opened: Open
) -> None:
    ledger.execute(f'ALTER DATABASE {ledger.database} SET search_path = ackbox, "My shop", public')
    store = await opened()
    await store.apply_tables(['CREATE SCHEMA "My shop"', "CREATE TABLE mine (id int)"])
    assert ledger.execute('SELECT count(*) FROM "My shop".mine') == "0"


async def test_a_start_without_a_schema_for_users_tables_fails_and_says_what_to_do(
    ledger: PostgresLedger, opened: Open
) -> None:
    alone = 'ALTER ROLE ackbox SET search_path = "$user"'
    with role(ledger, "ackbox", alone, "CREATE SCHEMA ackbox AUTHORIZATION ackbox") as url:
        with pytest.raises(SettingError, match="Your own tables have no schema") as refused:
            await opened(url=url)
        assert ledger.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'ackbox'") == "0"
        remedy = str(refused.value).partition("Run ")[2].partition(", or")[0]
        ledger.execute(remedy)
        await opened(url=url)


async def test_a_start_in_public_asks_for_another_schema_and_creates_nothing(
    ledger: PostgresLedger, opened: Open
) -> None:
    with pytest.raises(SettingError, match="Name another ACKBOX_DATABASE_SCHEMA") as refused:
        await opened("public")
    assert "ALTER ROLE" not in str(refused.value)
    assert ledger.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == "0"


@pytest.mark.parametrize("search_path", ["pg_catalog", "pg_catalog, information_schema"])
async def test_a_schema_of_the_server_is_none_for_users_tables(
    ledger: PostgresLedger, opened: Open, search_path: str
) -> None:
    ledger.execute(f"ALTER DATABASE {ledger.database} SET search_path = {search_path}")
    with pytest.raises(SettingError, match="Your own tables have no schema"):
        await opened()


async def test_a_search_path_is_folded_without_the_locale_of_the_database(
    ledger: PostgresLedger, opened: Open
) -> None:
    """The server folds only the letters of ASCII in a name. Other letters, and the Turkish I,
    depend on the locale."""
    locale = "ENCODING 'UTF8' LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"
    name = f"{ledger.database}_locale"
    ledger.execute(f"CREATE DATABASE {name} TEMPLATE template0 {locale}")
    ledger.server.execute('CREATE SCHEMA "École"', name)
    url = f"{ledger.server.url(name)}?search_path=%C3%89COLE"
    store = await opened(url=url)
    await store.apply_tables(["CREATE TABLE mine (id int)"])
    await store.close()
    assert ledger.server.execute('SELECT count(*) FROM "École".mine', name) == "0"
    ledger.execute(f"DROP DATABASE {name}")


async def test_an_outage_while_users_tables_are_changed_is_reported(
    ledger: PostgresLedger,
) -> None:
    """The start tries again, for ever: without a report nobody would know why."""
    facts = Facts()
    app = App(Settings(database_url=SecretStr(ledger.url)), guest=True, observers=[facts])
    inbox = Inbox()
    inbox.migration("0001", "CREATE TABLE slow AS SELECT 1 FROM pg_sleep(60)")
    kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE "
    starting = asyncio.create_task(inbox.running(app).__aenter__())
    try:
        async with asyncio.timeout(30):
            while not facts.of(StoreFailed):
                await asyncio.to_thread(ledger.execute, f"{kill} 'CREATE TABLE slow%'")
        assert "terminating connection" in facts.of(StoreFailed)[0].reason
        unready = inbox.asgi().runtime.why_not_ready()
        assert unready is not None
        assert unready.reason.endswith("failed while tables were prepared; the start tries again.")
    finally:
        starting.cancel()
        await asyncio.wait([starting])
        await inbox.asgi().runtime.stop()
