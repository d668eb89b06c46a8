"""`ackbox.enqueue`: an event in a transaction of the user's own."""

import asyncio
from typing import Any

import asyncpg
import pytest

from ackbox.app import utc_now
from ackbox.model import EventFilter, Order
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import PostgresStore
from ackbox.stores.postgres.write.submissions import PostgresSubmissions
from support.databases.postgres_cli import Open, PostgresLedger, keys, reading, role
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.postgres_backend import PostgresBackend
from support.workers.queue_worker import QueueWorker, done

GRANTS = (
    "GRANT USAGE ON SCHEMA ackbox TO shop",
    "GRANT EXECUTE ON FUNCTION ackbox.enqueue TO shop",
)


async def call(url: str, sql: str, *values: Any) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql, *values)
    finally:
        await connection.close()


async def move_all(store: PostgresStore) -> int:
    moved = 0
    while envelopes := (await store.submissions.move()).envelopes:
        moved += len(envelopes)
    return moved


async def test_all_arguments_reach_the_event(backend: PostgresBackend) -> None:
    key = await call(
        backend.url,
        "SELECT ackbox.enqueue('order.placed', payload => $1, key => 'o-7', source => 'shop',"
        " lane => 'customer-1')",
        '{"id": 7, "name": "é"}',
    )
    assert key == "o-7"
    assert await move_all(backend.store) == 1
    (row,) = await backend.rows()
    names = ("event_type", "idempotency_key", "source", "lane", "transport", "parent_id")
    assert [row[name] for name in names] == [
        *("order.placed", "o-7", "shop", "customer-1", "sql", None)
    ]
    assert (row["payload"], row["content_type"]) == (
        '{"id": 7, "name": "é"}'.encode(),
        "application/json",
    )


async def test_source_key_and_lane_have_defaults(backend: PostgresBackend) -> None:
    given = [
        await call(backend.url, "SELECT ackbox.enqueue('a', '{}')"),
        await call(backend.url, "SELECT ackbox.enqueue('a', jsonb_build_object('n', 1))"),
    ]
    await move_all(backend.store)
    rows = await backend.rows()
    assert [row["idempotency_key"] for row in rows] == given
    assert len(set(given)) == 2
    assert {(row["source"], row["lane"]) for row in rows} == {("app", None)}


async def test_nothing_is_recorded_before_the_commit_or_after_a_rollback(
    backend: PostgresBackend,
) -> None:
    connection = await asyncpg.connect(backend.url)
    for key, end in (("lost", "ROLLBACK"), ("kept", "COMMIT")):
        await connection.execute(f"BEGIN; SELECT ackbox.enqueue('a', '1', key => '{key}')")
        assert await move_all(backend.store) == 0
        await connection.execute(end)
    await connection.close()
    assert await move_all(backend.store) == 1
    assert [row["idempotency_key"] for row in await backend.rows()] == ["kept"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("'', '1'", "enqueue: event_type must have 1 to 255 characters, not 0"),
        ("NULL, '1'", "enqueue: event_type is required, not NULL"),
        ("repeat('x', 256), '1'", "enqueue: event_type must have 1 to 255 characters, not 256"),
        ("'a', '1', key => ''", "enqueue: key must have 1 to 255 characters, not 0"),
        ("'a', '1', key => E'a\\nb'", "enqueue: key must not contain a control character"),
        ("'a', '1', source => U&'\\0085'", "enqueue: source must not contain a control character"),
        ("'a', '1', source => NULL", "enqueue: source is required, not NULL"),
        ("'a', '1', lane => ''", "enqueue: lane must have 1 to 255 characters, not 0"),
        ("'a', NULL", "enqueue: payload is required, not NULL"),
        (
            "'a', to_jsonb(repeat('x', 16777215))",
            "enqueue: payload must have at most 16777216 bytes, not 16777217",
        ),
        ("'a', 'no json'", "invalid input syntax for type json"),
    ],
)
async def test_a_bad_argument_is_named_and_nothing_is_sent(
    backend: PostgresBackend, arguments: str, reason: str
) -> None:
    with pytest.raises(asyncpg.DataError, match=reason):
        await call(backend.url, f"SELECT ackbox.enqueue({arguments})")
    assert await move_all(backend.store) == 0


@pytest.mark.parametrize(
    "name", ["x" * 255, "é" * 255, "\U0001f4ee", "a b", "ꟸ", "\u00a0", "a" + "\u0308" * 3]
)
async def test_a_name_that_senders_may_use_can_be_enqueued(
    backend: PostgresBackend, name: str
) -> None:
    sql = "SELECT ackbox.enqueue($1, 'null', key => $1, source => $1, lane => $1)"
    assert await call(backend.url, sql, name) == name
    await move_all(backend.store)
    (row,) = await backend.rows()
    assert {row[n] for n in ("event_type", "idempotency_key", "source", "lane")} == {name}


async def test_a_role_needs_only_the_two_grants(ledger: PostgresLedger, opened: Open) -> None:
    store = await opened()
    enqueue = "SELECT ackbox.enqueue('a', '1', key => 'k')"
    with role(ledger, "shop") as url:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="schema ackbox"):
            await call(url, enqueue)
        ledger.execute(GRANTS[0])
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="function enqueue"):
            await call(url, enqueue)
        ledger.execute(GRANTS[1])
        assert await call(url, enqueue) == "k"
        for sql in ("SELECT count(*) FROM ackbox.submissions", "DELETE FROM ackbox.events"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await call(url, sql)
    assert await move_all(store) == 1
    assert await keys(ledger, "ackbox") == ["k"]


async def test_a_caller_cannot_replace_what_the_function_calls(
    ledger: PostgresLedger, opened: Open
) -> None:
    """The function runs with the rights of its owner, so it must not use the caller's names."""
    store = await opened()
    before = (*GRANTS, "GRANT CREATE ON SCHEMA public TO shop")
    with role(ledger, "shop", *before) as url:
        connection = await asyncpg.connect(url)
        await connection.execute(
            "CREATE FUNCTION public.octet_length(bytea) RETURNS int LANGUAGE sql AS 'SELECT 1/0';"
            "SET search_path = public, pg_catalog; CREATE TEMP TABLE submissions (n int)"
        )
        await connection.execute("SELECT ackbox.enqueue('a', '1', key => 'k')")
        await connection.close()
        assert await move_all(store) == 1


async def test_a_ledger_in_another_schema_has_a_function_of_its_own(
    ledger: PostgresLedger, opened: Open
) -> None:
    store = await opened("user")
    await call(ledger.url, "SELECT \"user\".enqueue('a', '1', key => 'k')")
    assert await move_all(store) == 1
    assert await keys(ledger, "user") == ["k"]


async def test_an_open_transaction_blocks_no_sender_no_claim_and_no_reader(
    backend: PostgresBackend,
) -> None:
    """`make chaos` keeps such a transaction open for a minute."""
    connection = await asyncpg.connect(backend.url)
    await connection.execute("BEGIN; SELECT ackbox.enqueue('a', '1', key => 'open', lane => 'l')")
    async with asyncio.timeout(10):
        await work_beside(backend)
    await connection.execute("COMMIT")
    await connection.close()
    await move_all(backend.store)
    assert [row["idempotency_key"] for row in await backend.rows()][-1] == "open"


async def work_beside(backend: PostgresBackend) -> None:
    """Do what senders, workers, movers and readers do: none may wait for the open transaction."""
    store, worker = backend.store, QueueWorker(backend.store.queue)
    await record_in(store, [*envelopes(3), envelope("l", source="app", lane="l")])
    assert await call(backend.url, "SELECT ackbox.enqueue('a', '1', 'done', lane => 'l')") == "done"
    assert await move_all(store) == 1
    claims = await worker.claim()
    assert len(claims) == 4  # the second event of the lane waits for the first
    await worker.settle_all(claims, done())
    async with reading(Address(backend.url)) as reader:
        page = await reader.events(EventFilter(), order=Order.NEWEST, limit=10)
        assert len(page.items) == 5
        assert (await reader.stats(backend.clock())).counts["completed"] == 4  # type: ignore[index]


async def test_while_one_instance_moves_a_lane_another_moves_only_what_has_no_lane(
    backend: PostgresBackend,
) -> None:
    for key, lane in (("first", "'l'"), ("second", "'l'"), ("free", "NULL")):
        sql = f"SELECT ackbox.enqueue('a', '1', key => '{key}', lane => {lane})"
        await call(backend.url, sql)
    other = PostgresSubmissions(backend.store.database, asyncio.Event(), ignore, utc_now)
    taken = {"limit": 1, "bytes": 1, "lanes_lock": other.lanes_lock}

    async def move_and_die() -> None:
        async with backend.store.database.transaction() as session:
            assert [row[2] for row in await session.fetch("take_submissions", **taken)] == ["first"]
            moved = await other.move()
            assert [e.idempotency_key for e in moved.envelopes] == ["free"]
            raise LookupError

    with pytest.raises(LookupError):
        await move_and_die()
    moved = await other.move()
    assert [e.idempotency_key for e in moved.envelopes] == ["first", "second"]


def ignore(*_: object) -> None: ...


async def test_events_are_moved_through_a_pooling_proxy(
    ledger: PostgresLedger, opened: Open
) -> None:
    store = await opened(pooled=True)
    await call(ledger.url, "SELECT ackbox.enqueue('a', '1', key => 'k', lane => 'l')")
    assert await move_all(store) == 1
    assert await keys(ledger, "ackbox") == ["k"]


async def test_a_trigger_of_the_users_can_enqueue(backend: PostgresBackend) -> None:
    await backend.store.apply_tables(["CREATE TABLE orders (id int)"])
    for sql in (
        "CREATE FUNCTION public.announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM ackbox.enqueue('order.placed', to_jsonb(NEW), key => NEW.id::text);"
        " RETURN NEW; END $$",
        "CREATE TRIGGER placed AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION announce()",
        "INSERT INTO orders VALUES (7)",
    ):
        await call(backend.url, sql)
    assert await move_all(backend.store) == 1
    assert [row["payload"] for row in await backend.rows()] == [b'{"id": 7}']
    await call(backend.url, "DROP FUNCTION public.announce() CASCADE")
