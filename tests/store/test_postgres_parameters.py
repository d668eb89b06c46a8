"""PostgreSQL checks the types of parameters. Its errors name a parameter as the user wrote it."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from ackbox.errors import InvalidStatement
from ackbox.model import Done, Outcome, RetryLater, Settlement
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.telemetry import ignore_facts
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.events import envelope, noon, record_in
from support.workers.queue_worker import QueueWorker, done, retry_later

SCHEMA = [
    "CREATE TABLE mine (id text, n integer, at timestamptz, local_at timestamp, body jsonb)",
    "CREATE SEQUENCE numbers",
]


@pytest.fixture
async def url(postgres_of: Callable[[Install], PostgresServer]) -> AsyncIterator[str]:
    server = postgres_of(find_installs()[-1])
    made = server.create_database()
    yield made
    server.recycle_database(made)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    opened = await open_store(Address(url), clock=noon, observe=ignore_facts)
    await opened.apply_tables(SCHEMA)
    yield opened
    await opened.close()


@pytest.fixture
async def reader(url: str, store: PostgresStore) -> AsyncIterator[PostgresReader]:
    opened = PostgresReader(Address(url))
    yield opened
    await opened.close()


async def settle(store: PostgresStore, sql: str, **params: object) -> Outcome:
    await record_in(store, [envelope()])
    me = QueueWorker(store.queue)
    claim = await me.claim_one()
    outcome = done(sql, on_effect_failure=retry_later("tx"), **params)
    return (await me.queue.settle([Settlement(claim, outcome)]))[claim.id]


INSERT = "INSERT INTO mine (id, {0}) VALUES (:id, :value)"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n", "7"),
        ("at", "tomorrow"),
        ("at", 7),
        ("local_at", "tomorrow"),
        ("body", {"a": 1}),
    ],
)
async def test_a_value_of_another_type_fails_by_its_name(
    store: PostgresStore, column: str, value: object
) -> None:
    written = await settle(store, INSERT.format(column), id="costs $1", value=value)
    assert isinstance(written, RetryLater)
    assert written.failure.error.startswith("tx: invalid input for :value: ")
    assert "$2" not in written.failure.error


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n", 7),
        ("at", datetime(2026, 1, 31, tzinfo=UTC)),
        ("at", "2026-01-31T12:00:00Z"),
        ("local_at", datetime(2026, 1, 31)),  # noqa: DTZ001 - such a column takes a naive time
        ("local_at", datetime(2026, 1, 31, tzinfo=UTC)),
        ("local_at", "2026-01-31T12:00:00"),
        ("body", '{"a": 1}'),
    ],
)
async def test_a_value_of_the_columns_type_is_written(
    store: PostgresStore, column: str, value: object
) -> None:
    assert isinstance(await settle(store, INSERT.format(column), id="a", value=value), Done)


async def test_a_column_without_zones_holds_a_time_in_utc(
    store: PostgresStore, reader: PostgresReader
) -> None:  # N13
    in_oslo = datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1)))
    await settle(store, INSERT.format("local_at"), id="a", value=in_oslo)
    (row,) = await reader.query("SELECT local_at::text AS at FROM mine", {})
    assert row["at"] == "2026-01-31 12:00:00"


async def test_an_error_of_the_server_names_the_parameter(store: PostgresStore) -> None:
    sql = "INSERT INTO mine (id) SELECT :id WHERE :unknown IS NULL"
    written = await settle(store, sql, id="a", unknown=None)
    assert isinstance(written, RetryLater)
    assert "could not determine data type of :unknown" in written.failure.error


async def test_an_error_of_a_query_names_the_parameter(reader: PostgresReader) -> None:
    with pytest.raises(InvalidStatement, match="invalid input for :n: 'str' object"):
        await reader.query("SELECT id FROM mine WHERE n = :n", {"n": "x"})


async def test_a_query_that_writes_is_refused(reader: PostgresReader) -> None:
    with pytest.raises(InvalidStatement, match="nextval"):
        await reader.query("SELECT nextval('numbers')", {})
