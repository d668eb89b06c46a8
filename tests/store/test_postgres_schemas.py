"""A PostgreSQL ledger in a schema of its own (`DATABASE_SCHEMA`), beside users' tables and other
ledgers."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

import pytest

from ackbox.app import utc_now
from ackbox.errors import SettingError, StoreError
from ackbox.model import Done, EventFilter, Order, ReceiptKind, Status
from ackbox.stores.postgres.admin import migrator, rights
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.read.read_horizon import last_readable, nearest
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.postgres.statements import lock_key
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.stores.postgres.write import record
from ackbox.stores.postgres.write.queue import PostgresQueue
from ackbox.telemetry import ignore_facts
from support.backends import Server
from support.events import envelope, envelopes, record_in
from support.guarded import clean_environment
from support.postgres import find_installs
from support.postgres_cli import PostgresLedger
from support.queue_worker import QueueWorker, done

Open = Callable[..., Awaitable[PostgresStore]]
LONG = "a_schema_name_as_long_as_postgresql_takes_them_" + "x" * 16
MAY_READ = (
    'GRANT USAGE ON SCHEMA "user" TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA "user" TO guest'
)


@pytest.fixture
def ledger(postgres_of: Server) -> Iterator[PostgresLedger]:
    """An empty database."""
    created = PostgresLedger(postgres_of(find_installs()[-1]))
    yield created
    created.server.recycle_database(created.url)


@pytest.fixture
async def opened(ledger: PostgresLedger) -> AsyncIterator[Open]:
    """Open the ledger in a schema. It is closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def open_in(
            schema: str = "ackbox", *, url: str = "", pooled: bool = False, notify: bool = False
        ) -> PostgresStore:
            address = Address(url or ledger.url, schema=schema, pooled=pooled)
            store = await open_store(address, clock=utc_now, observe=ignore_facts, notify=notify)
            stack.push_async_callback(store.close)
            return store

        yield open_in


@asynccontextmanager
async def reading(address: Address) -> AsyncIterator[PostgresReader]:
    reader = PostgresReader(address)
    try:
        yield reader
    finally:
        await reader.close()


async def keys(ledger: PostgresLedger, schema: str) -> list[str]:
    """List the keys of a ledger as an export does."""
    async with reading(Address(ledger.url, schema=schema)) as reader:
        page = await reader.events(EventFilter(), order=Order.OLDEST, limit=50)
    return [event.idempotency_key for event in page.items]


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Database]:
    database = Database(address, size=1)
    try:
        yield database
    finally:
        await database.close()


@contextmanager
def role(ledger: PostgresLedger, name: str, *statements: str) -> Iterator[str]:
    """Create a role, and yield the URL with which it connects."""
    ledger.execute(f"CREATE ROLE {name} LOGIN; {'; '.join(statements)}")
    try:
        yield ledger.url.replace("postgres@", f"{name}@")
    finally:
        ledger.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - nothing signals a wake-up
            await asyncio.sleep(0.01)


# --- several ledgers in one database


async def test_an_open_transaction_of_one_ledger_hides_no_event_of_another(
    ledger: PostgresLedger, opened: Open
) -> None:
    first, second = await opened("first"), await opened("second")
    await record_in(second, envelopes(9))
    async with first.database.transaction() as session:
        await session.fetch("record", **record._values(envelopes(2), []))
        assert await keys(ledger, "second") == [f"key-{n}" for n in range(9)]
        assert await keys(ledger, "first") == []


async def test_a_notification_wakes_the_instances_of_its_own_ledger_alone(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes: Counter[PostgresQueue] = Counter()
    wake = PostgresQueue.wake
    monkeypatch.setattr(PostgresQueue, "wake", lambda queue: (wakes.update([queue]), wake(queue)))
    sender, peer = await opened("first", notify=True), await opened("first", notify=True)
    other = await opened("second", notify=True)
    await until(lambda: len(wakes) == 3)  # each instance listens, and was woken once at its start
    before = wakes.copy()
    for number in range(5):
        await record_in(sender, [envelope(f"key-{number}")])
        await until(lambda: wakes[peer._own_queue] > before[peer._own_queue])
        before[peer._own_queue] = wakes[peer._own_queue]
    assert wakes[other._own_queue] == before[other._own_queue]


@pytest.mark.parametrize("purpose", ["migrate", "users' schema", "compact counts"])
async def test_no_ledger_waits_for_a_lock_of_another(
    ledger: PostgresLedger, opened: Open, purpose: str
) -> None:
    first = await opened("first")
    async with first.database.transaction() as session:
        await session.fetch("lock", key=lock_key("first", purpose))
        second = await opened("second")
        await second.apply_schema(["CREATE TABLE mine (id int)"])
        await record_in(second, envelopes(2))
        await record_in(second, envelopes(2, prefix="more"))
        await second.database.fetch("compact_counts", lock=lock_key("second", purpose))
        assert ledger.execute("SELECT status, events FROM second.status_counts") == "pending|4"


async def test_two_long_names_of_schemas_are_told_apart(
    opened: Open, ledger: PostgresLedger
) -> None:
    """Promote counts the processes of its own ledger by this name."""
    await opened(LONG)
    name = "SELECT count(DISTINCT application_name) FROM pg_stat_activity WHERE datname = "
    await opened(LONG[:-1] + "y")
    assert ledger.execute(f"{name} current_database() AND application_name LIKE 'ackbox%'") == "2"


@pytest.mark.parametrize("schema", ["user", "order", "_", LONG])
async def test_a_schema_may_have_any_allowed_name(
    ledger: PostgresLedger, opened: Open, schema: str
) -> None:
    store = await opened(schema, notify=True)
    await store.apply_schema(["CREATE TABLE mine (id text)"])
    await record_in(store, [envelope("a", lane="one")])
    worker = QueueWorker(store.queue)
    claim = await worker.claim_one()
    written = await worker.settle(claim, done("INSERT INTO mine VALUES (:id)", id="a"))
    assert isinstance(written[claim.id], Done)
    created = f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'"
    assert ledger.execute(created) == str(len(rights.OWN_TABLES))
    assert await keys(ledger, schema) == ["a"]


# --- the read horizon


@pytest.mark.parametrize("before", [0, 1, 2**32 - 3, 2**32 - 2, 2**32, 2**40 + 7])
async def test_an_event_is_not_readable_while_an_earlier_ingest_is_open(
    ledger: PostgresLedger, opened: Open, before: int
) -> None:
    store = await opened("first")
    if before:
        ledger.execute(f"SELECT setval('first.events_ledger_id_seq', {before})")
    async with store.database.transaction() as early:
        await early.fetch("record", **record._values(envelopes(2, prefix="early"), []))
        await record_in(store, envelopes(2, prefix="late"))
        async with store.database.reading() as session:
            assert await last_readable(session) == before
        assert await keys(ledger, "first") == []
    async with store.database.reading() as session:
        assert await last_readable(session) == before + 4
    assert await keys(ledger, "first") == ["early-0", "early-1", "late-0", "late-1"]


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**40, 2**63 - 2**31 - 1])
def test_a_ledger_id_is_restored_from_its_low_bits(number: int) -> None:
    """The ledger id may have been given after the last id was read."""
    for given in (number, number + 1, number + 100_000, max(number - 1, 0)):
        assert nearest(number & 0xFFFFFFFF, given) == number


# --- users' tables


async def assert_tables_named_like_ours_work(store: PostgresStore) -> None:
    """Create users' tables `events`, `audit` and `lanes`, and use them through `tx` and reads."""
    await store.apply_schema(
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
        assert (await reader.stats()).counts[Status.COMPLETED] == 1
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
        await store.apply_schema([])  # now it knows the search path
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
    await store.apply_schema(['CREATE SCHEMA "My shop"', "CREATE TABLE mine (id int)"])
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
    await store.apply_schema(["CREATE TABLE mine (id int)"])
    await store.close()
    assert ledger.server.execute('SELECT count(*) FROM "École".mine', name) == "0"
    ledger.execute(f"DROP DATABASE {name}")


# --- the rights of a role


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


# --- dump and restore


async def test_a_restored_dump_is_the_same_ledger(ledger: PostgresLedger, opened: Open) -> None:
    store = await opened("inbox")
    await store.apply_schema(["CREATE TABLE mine (id text)"])
    await record_in(store, [envelope("a", b"[1]", lane="one"), envelope("b", lane="one")])
    restored = PostgresLedger(ledger.server)
    try:
        dump_and_restore(ledger, restored)
        reopened = await opened("inbox", url=restored.url)
        await reopened.apply_schema(["CREATE TABLE IF NOT EXISTS mine (id text)"])
        kinds = [
            receipt.kind
            for receipt in await record_in(reopened, [envelope("a", b"[1]"), envelope("c")])
        ]
        assert kinds == [ReceiptKind.DUPLICATE, ReceiptKind.NEW]
        worker = QueueWorker(reopened.queue)
        claims = {claim.idempotency_key: claim for claim in await worker.claim()}
        assert set(claims) == {"a", "c"}
        await worker.settle(claims["a"], done("INSERT INTO mine VALUES (:id)", id="a"))
        assert await worker.keys() == ["b"]
        assert restored.execute("SELECT * FROM mine") == "a"
        assert restored.execute("SELECT count(payload_json) FROM inbox.events") == "3"
    finally:
        ledger.server.recycle_database(restored.url)


def dump_and_restore(source: PostgresLedger, target: PostgresLedger) -> None:
    run = partial(subprocess.run, check=True, env=clean_environment(), stdout=subprocess.PIPE)
    dump = run([source.server.bin / "pg_dump", source.url]).stdout
    run([source.server.bin / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", target.url], input=dump)
