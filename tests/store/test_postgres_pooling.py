"""A store behind a proxy that gives each transaction another connection (`DATABASE_POOLING`)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from ackbox.app import utc_now
from ackbox.errors import SettingError, Unavailable
from ackbox.model import EventId, ReplayKind, Status
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.telemetry import ignore_facts
from support.databases.postgres import Install, PostgresServer, find_installs
from support.faults.pooling_proxy import PoolingProxy, pooled
from support.http.posting import posted
from support.ledgers.events import envelope, noon, record_in
from support.servers.cluster import Instance
from support.time.polling import eventually
from support.workers.queue_worker import QueueWorker, dead, done, retry_later


@pytest.fixture(params=[find_installs()[0], find_installs()[-1]], ids=str)
def server(
    request: pytest.FixtureRequest, postgres_of: Callable[[Install], PostgresServer]
) -> PostgresServer:
    return postgres_of(request.param)


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[PoolingProxy]:
    with pooled(server.port, server.create_database().rpartition("/")[2]) as running:
        yield running


@pytest.fixture
def proxy_to_our_path(server: PostgresServer) -> Iterator[PoolingProxy]:
    """A proxy whose server sessions have our schema first on their search path."""
    name = server.create_database().rpartition("/")[2]
    server.execute(f"ALTER DATABASE {name} SET search_path = ackbox, public")
    with pooled(server.port, name) as running:
        yield running


@pytest.fixture
def url(proxy: PoolingProxy) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/any"


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    address = Address(url, pooled=True)
    opened = await open_store(address, clock=utc_now, observe=ignore_facts)
    yield opened
    await opened.close()


@pytest.fixture
async def reader(url: str, store: PostgresStore) -> AsyncIterator[PostgresReader]:
    opened = PostgresReader(Address(url, pooled=True))
    yield opened
    await opened.close()


@pytest.fixture
def me(store: PostgresStore) -> QueueWorker:
    return QueueWorker(store.queue)


async def test_events_are_recorded_once_claimed_and_settled(
    store: PostgresStore, reader: PostgresReader, me: QueueWorker, proxy: PoolingProxy
) -> None:
    sent = [envelope(f"key-{n}") for n in range(5)]
    first = await record_in(store, sent)
    second = await record_in(store, [envelope("key-0"), envelope("key-9")])
    assert second[0].id == first[0].id
    claims = await me.claim()
    assert len(claims) == 6
    assert len(await store.queue.renew(claims, lease=timedelta(seconds=30))) == 6
    await me.settle_all(claims[:4], done())
    await me.settle(claims[4], retry_later())
    await me.settle(claims[5], dead())
    counts = (await reader.stats(noon())).counts
    assert [counts[status] for status in (Status.COMPLETED, Status.PENDING, Status.FAILED)] == [
        4,
        1,
        1,
    ]
    assert proxy.lent > 10


async def test_effects_are_those_of_the_valid_run(
    store: PostgresStore, reader: PostgresReader, me: QueueWorker
) -> None:
    await store.apply_tables(["CREATE TABLE seen (key text, n bigint)"])
    await record_in(store, [envelope("a"), envelope("b")])
    claims = await me.claim()
    for claim in claims:
        insert = done("INSERT INTO seen VALUES (:key, :n)", key=claim.idempotency_key, n=1)
        await me.settle(claim, insert)
    rows = await reader.query("SELECT key FROM seen WHERE n = :n ORDER BY key", {"n": 1})
    assert rows == [{"key": "a"}, {"key": "b"}]


async def test_users_sql_never_finds_our_schema(
    server: PostgresServer, proxy_to_our_path: PoolingProxy
) -> None:
    """The search path is narrowed in each transaction: the next one may get another session."""
    url = f"postgresql://postgres@127.0.0.1:{proxy_to_our_path.port}/any"
    address = Address(url, pooled=True)
    store = await open_store(address, clock=utc_now, observe=ignore_facts)
    reader = PostgresReader(address)
    try:
        await store.apply_tables(["CREATE TABLE lanes (key text)"])
        await record_in(store, [envelope("a", lane="one")])
        me = QueueWorker(store.queue)
        claim = await me.claim_one()
        outcome = done("INSERT INTO lanes VALUES (:key)", key="a")
        assert (await me.settle(claim, outcome))[claim.id] == outcome
        for _ in range(5):
            assert await reader.query("SELECT * FROM lanes", {}) == [{"key": "a"}]
    finally:
        await reader.close()
        await store.close()
    assert server.execute("SELECT key FROM public.lanes", proxy_to_our_path.database) == "a"


async def test_no_transaction_of_our_own_sets_the_search_path(store: PostgresStore) -> None:
    """Our statements name the schema, and a SET takes 0.1 ms."""
    assert "search_path" not in store.database.address.begin


@pytest.mark.parametrize("left_behind", ["SET search_path = tenant", "SET search_path = ''"])
async def test_users_sql_does_not_use_the_path_that_another_client_left_behind(
    server: PostgresServer, proxy: PoolingProxy, url: str, left_behind: str
) -> None:
    server.execute("CREATE SCHEMA tenant; CREATE TABLE tenant.mine (key text)", proxy.database)
    await execute_in_each_session(url, left_behind)
    address = Address(url, pooled=True)
    store = await open_store(address, clock=utc_now, observe=ignore_facts)
    reader = PostgresReader(address)
    try:
        await store.apply_tables(["CREATE TABLE mine (key text)"])
        await record_in(store, [envelope("a"), envelope("b")])
        me = QueueWorker(store.queue)
        for claim in await me.claim():
            outcome = done("INSERT INTO mine VALUES (:key)", key="a")
            assert (await me.settle(claim, outcome))[claim.id] == outcome
            await execute_in_each_session(url, left_behind)
        for _ in range(4):
            assert len(await reader.query("SELECT * FROM mine", {})) == 2
            await execute_in_each_session(url, left_behind)
    finally:
        await reader.close()
        await store.close()
    assert server.execute("SELECT count(*) FROM public.mine", proxy.database) == "2"


async def execute_in_each_session(url: str, sql: str) -> None:
    """Run a statement as another client of the proxy, which lends its sessions in turn."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        for _ in range(3):
            await connection.execute(sql)
    finally:
        await connection.close()


async def test_a_search_path_with_an_empty_entry_does_not_end_the_start(
    server: PostgresServer,
) -> None:
    name = server.create_database().rpartition("/")[2]
    server.execute(f"ALTER DATABASE {name} SET search_path = '', ackbox, public")
    with pooled(server.port, name) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/any"
        store = await open_store(Address(url, pooled=True), clock=utc_now, observe=ignore_facts)
        try:
            await store.apply_tables(["CREATE TABLE first (id int)"])
            await store.apply_tables(["CREATE TABLE second (id int)"])
        finally:
            await store.close()
        tables = "SELECT count(*) FROM pg_tables WHERE tablename IN ('first', 'second')"
        assert server.execute(tables, name) == "2"


async def test_a_lane_runs_in_order(store: PostgresStore, me: QueueWorker) -> None:
    await record_in(store, [envelope(key, lane="one") for key in "abc"])
    for key in "abc":
        claim = await me.claim_one()
        assert claim.idempotency_key == key
        await me.settle(claim, done())


async def test_a_replay_runs_again(store: PostgresStore, me: QueueWorker) -> None:
    (receipt,) = await record_in(store, [envelope("a")])
    await me.settle(await me.claim_one(), dead())
    event_id = EventId(receipt.id)
    assert await store.replay([event_id], actor="me") == {event_id: ReplayKind.REPLAYED}
    assert (await me.claim_one()).run == 2


async def test_a_lease_is_renewed_from_another_loop(store: PostgresStore, me: QueueWorker) -> None:
    """The heartbeat renews from its own thread and event loop."""
    await record_in(store, [envelope("a")])
    claim = await me.claim_one()

    async def renew() -> None:
        for _ in range(4):
            assert await store.queue.renew([claim], lease=timedelta(seconds=30)) == {claim.id}

    await asyncio.to_thread(lambda: asyncio.run(renew()))


async def test_a_start_without_the_pooling_setting_fails_and_names_the_setting(url: str) -> None:
    with pytest.raises(SettingError, match="Set ACKBOX_DATABASE_POOLING=transaction"):
        async with asyncio.timeout(10):
            await open_store(Address(url), clock=utc_now, observe=ignore_facts)


async def test_a_database_without_the_pooling_setting_stays_available_for_retries(url: str) -> None:
    database = Database(Address(url), size=1)
    try:
        with pytest.raises(Unavailable, match="Set ACKBOX_DATABASE_POOLING=transaction"):
            await query_often(database)
        assert database.unavailable_reason is None
    finally:
        await database.close()


async def query_often(database: Database) -> None:
    for _ in range(10):
        await database.fetch("server_time")


SLOW = """
import asyncio
from ackbox import Inbox

inbox = Inbox()
inbox.schema("CREATE TABLE IF NOT EXISTS effects (event_id TEXT, run INTEGER)")

@inbox.on("*")
async def handle(event, tx):
    await asyncio.sleep(event.json())
    tx.execute("INSERT INTO effects VALUES (:id, :run)", id=event.id, run=event.run)
"""


def test_a_server_behind_a_proxy_keeps_its_leases_without_notifications(
    server: PostgresServer, proxy: PoolingProxy, url: str, tmp_path: Path
) -> None:
    settings = {"DATABASE_POOLING": "transaction", "NOTIFY": "off", "CLAIM_TIMEOUT": "2s"}
    instance = Instance(tmp_path, SLOW, url, settings)
    try:
        instance.wait_until_ready()
        for seconds in (3, *[0] * 20):
            assert instance.post(posted(payload=seconds)).status == 202
        runs = "SELECT count(*), max(run) FROM effects"
        eventually(lambda: server.execute(runs, proxy.database) == "21|1", within=15)
        assert instance.stop() == 0
        assert "Traceback" not in instance.log
    finally:
        instance.kill()
