"""Users' SQL leaves no setting and no lock in a PostgreSQL session that is used again (S11)."""

import asyncio

import pytest

from ackbox.errors import InvalidStatement, Unavailable
from ackbox.model import Done, RetryLater
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.postgres.read.user_query import to_dicts
from support.ledgers.events import envelope, noon, record_in
from support.ledgers.postgres_backend import PostgresBackend
from support.workers.queue_worker import QueueWorker, done

SCHEMA = [
    "CREATE TABLE IF NOT EXISTS mine (id TEXT)",
    "CREATE OR REPLACE FUNCTION lock_and_fail() RETURNS int LANGUAGE plpgsql AS "
    "$$ BEGIN PERFORM pg_advisory_lock(77); RAISE EXCEPTION 'no'; END $$",
]
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid IN (77, 78)"
LEFT = """
SELECT current_setting('statement_timeout'), current_setting('plan_cache_mode'), current_user,
       current_setting('application_name'), coalesce(current_setting('my.own', true), '')
"""


@pytest.fixture(autouse=True)
async def tables(backend: PostgresBackend) -> None:
    await backend.store.apply_tables(SCHEMA)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO mine VALUES ('a') --\r; COMMIT",
        "INSERT INTO mine VALUES ('a') --\r; INSERT INTO mine VALUES ('b')",
        "INSERT INTO mine VALUES ('a') -- b\r\n; COMMIT",
    ],
)
async def test_a_comment_hides_no_second_statement(
    backend: PostgresBackend, sql: str
) -> None:  # S11
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, [envelope("a")])
    claim = await me.claim_one()
    written = await me.settle(claim, done(sql))
    assert isinstance(written[claim.id], RetryLater)
    assert await backend.fetch("SELECT * FROM mine") == []


async def test_a_statement_without_parameters_is_one_statement_to_the_server(
    backend: PostgresBackend,
) -> None:  # S11
    """The server refuses several statements even if our own check accepted them."""
    async with backend.store.database.users_transaction() as session:
        with pytest.raises(InvalidStatement, match="multiple commands"):
            await session.execute("INSERT INTO mine VALUES ('a'); COMMIT", {}, 5.0)
    assert await backend.fetch("SELECT * FROM mine") == []
    async with backend.store.database.users_transaction() as session:
        await session.execute("INSERT INTO mine VALUES ('b')", {}, 5.0)
    assert len(await backend.fetch("SELECT * FROM mine")) == 1


async def test_a_search_path_that_a_users_function_set_does_not_outlive_its_transaction(
    backend: PostgresBackend,
) -> None:
    """The settings of other events, and of users' DDL, are those of the start."""
    await backend.store.apply_tables(
        [
            "CREATE SCHEMA IF NOT EXISTS elsewhere",
            "CREATE TABLE IF NOT EXISTS elsewhere.mine (id TEXT)",
            "CREATE OR REPLACE FUNCTION wander() RETURNS text LANGUAGE sql AS "
            "$$ SELECT pg_catalog.set_config('search_path', 'elsewhere', false) $$",
        ]
    )
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, [envelope("a"), envelope("b")])
    for claim, sql in zip(
        await me.claim(),
        ("INSERT INTO mine SELECT wander()", "INSERT INTO mine VALUES ('b')"),
        strict=True,
    ):
        assert isinstance((await me.settle(claim, done(sql)))[claim.id], Done)
    await backend.store.apply_tables(["CREATE TABLE IF NOT EXISTS later (id TEXT)"])
    assert await backend.fetch("SELECT id FROM public.mine") == [("elsewhere",), ("b",)]
    assert await backend.fetch("SELECT to_regclass('elsewhere.later')::text") == [(None,)]
    await backend.fetch("DROP SCHEMA elsewhere CASCADE")
    await backend.fetch("DROP TABLE later")


@pytest.mark.parametrize("pooled", [False, True], ids=["session", "transaction"])
async def test_a_query_leaves_no_setting_and_no_lock_behind(
    backend: PostgresBackend, pooled: bool
) -> None:  # S11
    reader = PostgresReader(Address(backend.url, pooled=pooled))
    try:
        before = await reader.query(LEFT, {})
        for sql in (
            "SELECT set_config('statement_timeout', '1h', false), set_config('my.own', 'x', false)",
            "SELECT set_config('plan_cache_mode', 'force_custom_plan', false)",
            "SELECT set_config('role', 'pg_monitor', false)",
            "SELECT pg_advisory_lock(77), pg_advisory_lock_shared(78)",
        ):
            await reader.query(sql, {})
        with pytest.raises(InvalidStatement):
            await reader.query("SELECT pg_advisory_lock(77), 1 / 0 FROM pg_class", {})
        with pytest.raises((InvalidStatement, Unavailable)):
            await reader.query("SELECT lock_and_fail()", {})
        assert await reader.query(LEFT, {}) == before
        assert await backend.fetch(LOCKS) == [(0,)]
        assert (await reader.stats(noon())).oldest_pending is None  # our own queries still work
    finally:
        await reader.close()


@pytest.mark.parametrize("pooled", [False, True], ids=["session", "transaction"])
async def test_a_query_that_takes_too_long_is_no_outage(
    backend: PostgresBackend, pooled: bool
) -> None:
    reader = PostgresReader(Address(backend.url, pooled=pooled), seconds=0.3)
    try:
        with pytest.raises(Unavailable, match=r"^The read took too long and was stopped"):
            await reader.query("SELECT pg_sleep(30)", {})
        assert await reader.query("SELECT 1 AS n", {}) == [{"n": 1}]
    finally:
        await reader.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (:v::text)::integer AS n",
        "SELECT DATE '4713-01-01 BC' AS d",
        "SELECT (SELECT n FROM (VALUES (1), (2)) AS a (n)) AS n",
        "SELECT pg_catalog.pg_input_error_info('x', 'integer'), :v::record",
    ],
)
async def test_an_error_of_a_query_is_blamed_on_it_without_a_value(
    backend: PostgresBackend, sql: str
) -> None:
    with pytest.raises(InvalidStatement, match=r"^inbox\.read") as refused:
        await backend.reader.query(sql, {"v": "a secret"})
    assert "secret" not in str(refused.value)


async def test_a_large_result_is_converted_without_blocking_the_event_loop() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    rows = [{"n": n} for n in range(100_000)]
    assert await to_dicts(rows) == rows
    counting.cancel()
    assert turns >= 40
