"""Effects on PostgreSQL, where other transactions may hold locks on the users' rows."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest

from ackbox.model import Done, Outcome, RetryLater, Settlement
from ackbox.stores.postgres.database import Address, connect
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.telemetry import ignore_facts
from support.ledgers.events import envelope, record_in
from support.ledgers.postgres_backend import PostgresBackend
from support.workers.queue_worker import OTHER, QueueWorker, done

SCHEMA = [
    "CREATE TABLE mine (id TEXT PRIMARY KEY, n INTEGER)",
    "INSERT INTO mine VALUES ('a', 0), ('b', 0), ('c', 0), ('d', 0), ('e', 0)",
    "CREATE TABLE naps (n INTEGER)",
    "CREATE OR REPLACE FUNCTION fail(code text) RETURNS int LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'user says' USING ERRCODE = code; END $$",
]
TOUCH = "UPDATE mine SET n = n + 1 WHERE id = :id"
NAP = "INSERT INTO naps SELECT 1 FROM pg_sleep(0.2)"
LONG_NAP = "INSERT INTO naps SELECT 1 FROM pg_sleep(10)"


@pytest.fixture(autouse=True)
async def tables(backend: PostgresBackend) -> None:
    await backend.store.apply_tables(SCHEMA)


@pytest.fixture
async def neighbour(backend: PostgresBackend) -> AsyncIterator[PostgresStore]:
    """Another instance on the same ledger."""
    opened = await open_store(Address(backend.url), clock=backend.clock, observe=ignore_facts)
    yield opened
    await opened.close()


def touch(*ids: str, nap: bool = False) -> Outcome:
    sql = [TOUCH.replace(":id", f"'{row_id}'") for row_id in ids]
    return done(*([sql[0], NAP, *sql[1:]] if nap else sql))


async def claimed(store: PostgresStore, name: str, outcomes: list[Outcome]) -> list[Settlement]:
    await record_in(store, [envelope(f"{name}-{n}") for n in range(len(outcomes))])
    claims = await QueueWorker(store.queue).claim(len(outcomes))
    return [Settlement(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]


async def touches(backend: PostgresBackend) -> dict[str, int]:
    return dict(await backend.fetch("SELECT id, n FROM mine"))


async def until_a_session_waits(backend: PostgresBackend, what: str) -> None:
    """Return when a statement in this database waits for a lock or sleeps."""
    sql = (
        f"SELECT 1 FROM pg_stat_activity WHERE '{what}' IN (wait_event_type, wait_event) "
        "AND datname = current_database()"
    )
    async with asyncio.timeout(10):
        while not await backend.fetch(sql):
            pass


def kinds(written: Any, batch: list[Settlement]) -> list[type]:
    return [type(written.get(settlement.claim.id)) for settlement in batch]


async def test_instances_that_lock_the_same_rows_in_other_orders_spend_no_attempt(
    backend: PostgresBackend, neighbour: PostgresStore
) -> None:
    outcomes = [touch(row_id) for row_id in "abcde" * 30]
    first = await claimed(backend.store, "here", outcomes)
    second = await claimed(neighbour, "there", outcomes[::-1])
    started = monotonic()
    written = await asyncio.gather(
        backend.store.queue.settle(first), neighbour.queue.settle(second)
    )
    assert monotonic() - started < 5
    assert kinds(written[0], first) + kinds(written[1], second) == [Done] * 300
    assert await touches(backend) == dict.fromkeys("abcde", 60)


async def test_two_deadlocked_runs_are_tried_again(
    backend: PostgresBackend, neighbour: PostgresStore
) -> None:
    first = await claimed(backend.store, "here", [touch("a", "b", nap=True)])
    second = await claimed(neighbour, "there", [touch("b", "a", nap=True)])
    written = await asyncio.gather(
        backend.store.queue.settle(first), neighbour.queue.settle(second)
    )
    assert kinds(written[0], first) + kinds(written[1], second) == [Done, Done]
    assert await touches(backend) == {"a": 2, "b": 2, "c": 0, "d": 0, "e": 0}


async def test_a_row_that_stays_locked_fails_only_the_runs_that_need_it(
    backend: PostgresBackend,
) -> None:
    batch = await claimed(backend.store, "e", [touch(row_id) for row_id in "bacbd"])
    locker = await connect(Address(backend.url))
    try:
        async with locker.transaction():
            await locker.execute("UPDATE mine SET n = 100 WHERE id = 'a'")
            written = await asyncio.wait_for(backend.store.queue.settle(batch), 4)
            await locker.execute("SELECT 1")  # resets the server's time-out of idle transactions
    finally:
        await locker.close()
    assert kinds(written, batch) == [Done, RetryLater, Done, Done, Done]
    failed = written[batch[1].claim.id]
    assert isinstance(failed, RetryLater)
    assert failed.failure.error.startswith(
        "tx: timed out waiting for a row lock held by another transaction. Statement: "
    )
    assert await touches(backend) == {"a": 100, "b": 2, "c": 1, "d": 1, "e": 0}


async def test_slow_statements_do_not_lock_their_lanes_for_senders(
    backend: PostgresBackend, neighbour: PostgresStore
) -> None:
    slow = [envelope(f"slow-{n}", lane=f"lane-{n}") for n in range(8)]
    await record_in(backend.store, slow)
    claims = await QueueWorker(backend.store.queue).claim(8)
    settling = asyncio.ensure_future(
        backend.store.queue.settle([Settlement(claim, done(NAP)) for claim in claims])
    )
    waits = []
    while not settling.done():
        started = monotonic()
        await record_in(neighbour, [envelope(f"quick-{started}", lane="lane-7")])
        waits.append(monotonic() - started)
    assert len(await settling) == 8
    assert max(waits) < 0.2
    assert len(waits) > 8


@pytest.mark.parametrize("code", ["08001", "57P01", "25006", "40001"])
async def test_an_error_of_a_users_statement_does_not_make_the_store_unavailable(
    backend: PostgresBackend, code: str
) -> None:
    bad = done("INSERT INTO mine VALUES (:code, fail(:code))", code=code)
    batch = await claimed(backend.store, "e", [touch("a"), bad, touch("b")])
    written = await backend.store.queue.settle(batch)
    assert kinds(written, batch) == [Done, RetryLater, Done]
    failed = written[batch[1].claim.id]
    assert isinstance(failed, RetryLater)
    assert failed.failure.error.startswith("tx: ")
    assert backend.store.unavailable_reason is None
    assert await touches(backend) == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 0}


async def test_a_run_that_loses_its_claim_while_it_is_settled_has_no_effects(
    backend: PostgresBackend, neighbour: PostgresStore
) -> None:
    """The other runs of the transaction are settled."""
    batch = await claimed(backend.store, "e", [touch("a", nap=True), touch("b", nap=True)])
    settling = asyncio.ensure_future(backend.store.queue.settle(batch))
    await until_a_session_waits(backend, "PgSleep")
    backend.clock.advance(seconds=31)
    (taken,) = await QueueWorker(neighbour.queue, OTHER).claim(1)
    lost = [settlement.claim.id == taken.id for settlement in batch]
    assert kinds(await settling, batch) == [type(None) if gone else Done for gone in lost]
    assert sum((await touches(backend)).values()) == 1


async def test_an_error_at_the_commit_has_the_message_of_the_server(
    backend: PostgresBackend,
) -> None:
    await backend.store.apply_tables(
        ["CREATE TABLE child (id TEXT REFERENCES mine (id) DEFERRABLE INITIALLY DEFERRED)"]
    )
    orphan = done("INSERT INTO child VALUES ('nobody')")
    batch = await claimed(backend.store, "e", [orphan])
    failed = (await backend.store.queue.settle(batch))[batch[0].claim.id]
    assert isinstance(failed, RetryLater)
    assert failed.failure.error.startswith('tx: insert or update on table "child" violates')


async def test_a_statement_that_times_out_is_stopped_and_fails_only_its_event(
    backend: PostgresBackend,
) -> None:
    batch = await claimed(backend.store, "e", [touch("a"), done(LONG_NAP), touch("b")])
    written = await backend.store.queue.settle(batch)
    assert kinds(written, batch) == [Done, RetryLater, Done]
    failed = written[batch[1].claim.id]
    assert isinstance(failed, RetryLater)
    stopped = "tx: a statement took longer than 1 s and was stopped. Statement: INSERT INTO naps"
    assert failed.failure.error.startswith(stopped)  # N2


async def test_a_deferred_trigger_that_raises_fails_only_its_event(
    backend: PostgresBackend,
) -> None:
    await backend.store.apply_tables(
        [
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.n > 5 THEN RAISE EXCEPTION 'too much'; END IF; RETURN NEW; END $$",
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON naps DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()",
        ]
    )
    bad = done("INSERT INTO naps VALUES (6)")
    batch = await claimed(backend.store, "e", [touch("a"), bad, touch("b")])
    written = await backend.store.queue.settle(batch)
    assert kinds(written, batch) == [Done, RetryLater, Done]
    failed = written[batch[1].claim.id]
    assert isinstance(failed, RetryLater)
    assert failed.failure.error == "tx: too much."


async def test_a_deferred_check_does_not_lock_its_lane_for_senders(
    backend: PostgresBackend, neighbour: PostgresStore
) -> None:
    await backend.store.apply_tables(
        ["CREATE TABLE child (id TEXT REFERENCES mine (id) DEFERRABLE INITIALLY DEFERRED)"]
    )
    await record_in(backend.store, [envelope("slow", lane="l")])
    claim = await QueueWorker(backend.store.queue).claim_one()
    locker = await connect(Address(backend.url))
    try:
        async with locker.transaction():
            await locker.execute("DELETE FROM mine WHERE id = 'a'")
            child = done("INSERT INTO child VALUES ('a')")
            settling = asyncio.ensure_future(backend.store.queue.settle([Settlement(claim, child)]))
            await until_a_session_waits(backend, "Lock")
            await asyncio.wait_for(record_in(neighbour, [envelope("quick", lane="l")]), 0.5)
            assert not settling.done()
            assert kinds(await asyncio.wait_for(settling, 3), [Settlement(claim, child)]) == [
                RetryLater
            ]
    finally:
        await locker.close()


async def test_a_failed_run_that_is_settled_again_returns_its_failure(
    backend: PostgresBackend,
) -> None:
    """The worker settles again if the response to its first call was lost."""
    batch = await claimed(backend.store, "e", [done("INSERT INTO nowhere VALUES (1)")])
    first = await backend.store.queue.settle(batch)
    assert await backend.store.queue.settle(batch) == first
    assert kinds(first, batch) == [RetryLater]


async def test_a_type_that_the_driver_looks_up_does_not_change_the_session(
    backend: PostgresBackend,
) -> None:
    await backend.store.apply_tables(
        ["CREATE TYPE colour AS ENUM ('red')", "CREATE TABLE painted (colour colour)"]
    )
    batch = await claimed(
        backend.store, "e", [done("INSERT INTO painted VALUES (:colour)", colour="red")]
    )
    assert kinds(await backend.store.queue.settle(batch), batch) == [Done]
    async with backend.store.database.reading() as session:
        assert await session.connection.fetchval("SHOW jit") == "off"
    await backend.fetch("DROP TYPE colour CASCADE")


async def test_a_run_that_is_settled_twice_in_one_call_has_its_effects_once(
    backend: PostgresBackend,
) -> None:
    (settlement,) = await claimed(backend.store, "e", [touch("a")])
    await backend.store.queue.settle([settlement, settlement])
    assert (await touches(backend))["a"] == 1


async def test_the_servers_default_isolation_level_does_not_matter(
    backend: PostgresBackend,
) -> None:
    name = backend.url.rpartition("/")[2]
    level = f'ALTER DATABASE "{name}" SET default_transaction_isolation = '
    await backend.fetch(f"{level} 'repeatable read'")
    opened = await open_store(Address(backend.url), clock=backend.clock, observe=ignore_facts)
    try:
        async with opened.database.transaction() as session:
            isolation = await session.connection.fetchval("SHOW transaction_isolation")
        assert isolation == "read committed"
    finally:
        await opened.close()
        await backend.fetch(f"{level} DEFAULT")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO naps VALUES (1) RETURNING DATE '4713-01-01 BC'",
        "INSERT INTO naps VALUES (1) RETURNING INTERVAL '100000000 years'",
        "DELETE FROM naps WHERE row(n) = :n",
        "INSERT INTO naps SELECT 1 WHERE :n::pg_node_tree IS NULL",
    ],
)
async def test_what_the_driver_cannot_send_or_read_fails_its_run_alone(
    backend: PostgresBackend, sql: str
) -> None:
    """The connection stays open, so the settle must not be repeated as after an outage."""
    batch = await claimed(backend.store, "e", [touch("a"), done(sql, n=(1,)), touch("b")])
    written = await backend.store.queue.settle(batch)
    assert kinds(written, batch) == [Done, RetryLater, Done]
    assert backend.store.unavailable_reason is None
    assert await backend.fetch("SELECT n FROM naps") == []
