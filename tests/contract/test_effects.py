"""`EventQueue.settle` with effects: the writes of a handler through `tx` commit with its event."""

import asyncio
from typing import Any

import pytest

from ackbox.errors import InvalidStatement, StartupError
from ackbox.model import DeadLetter, Done, Failure, Outcome, RetryLater, Settlement
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, envelopes, record_in
from support.workers.queue_worker import OTHER, QueueWorker, done, retry_later

SCHEMA = ["CREATE TABLE mine (id TEXT PRIMARY KEY, n INTEGER)", "CREATE TABLE log (what TEXT)"]
DELETE = "DELETE FROM {} RETURNING 1"
ADD = "INSERT INTO mine (id, n) VALUES (:id, :n)"


@pytest.fixture(autouse=True)
async def tables(backend: Backend) -> None:
    await backend.store.apply_tables(SCHEMA)


async def mine(backend: Backend) -> list[Any]:
    return [row["id"] for row in await backend.reader.query("SELECT id FROM mine ORDER BY id", {})]


async def settle(backend: Backend, *outcomes: Outcome, **more: Any) -> list[Outcome | None]:
    """Settle one event for each outcome in one call; return the outcome written for each."""
    sent = [envelope(f"e{n}", **more) for n in range(len(outcomes))]
    await record_in(backend.store, sent)
    claims = await QueueWorker(backend.store.queue).claim(len(outcomes))
    batch = [Settlement(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
    written = await backend.store.queue.settle(batch)
    return [written.get(claim.id) for claim in claims]


async def statuses(backend: Backend) -> list[str]:
    return [row["status"] for row in await backend.rows()]


async def test_effects_commit_with_the_completion(backend: Backend) -> None:
    (written,) = await settle(backend, done(ADD, "UPDATE mine SET n = n + 1", id="a", n=1))
    assert isinstance(written, Done)
    assert await backend.reader.query("SELECT id, n FROM mine", {}) == [{"id": "a", "n": 2}]
    assert await statuses(backend) == ["completed"]


@pytest.mark.parametrize(
    "sql",
    [
        ADD,  # its key is taken by the first statement
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO mine (id, n) VALUES (:missing, 1)",
        "nonsense",
        "",
        "SELECT 1",
        "CREATE TABLE more (id TEXT)",
        "DROP TABLE mine",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT x",
        "INSERT INTO mine (id) VALUES ('b'); COMMIT",
        "DELETE FROM events",
        "UPDATE EVENTS SET attempts = 0",
        'DELETE FROM "events"',
        "DELETE FROM status_counts",
        "INSERT INTO mine SELECT idempotency_key, 1 FROM events",
        "WITH e AS (SELECT status FROM events) INSERT INTO mine SELECT status, 1 FROM e",
        "INSERT INTO mine (id, n) VALUES ('b', (SELECT count(*) FROM events))",
    ],
)
async def test_a_statement_that_may_not_or_cannot_run_fails_its_event_alone(
    backend: Backend, sql: str
) -> None:
    written = await settle(
        backend, done(ADD, id="1", n=1), done(ADD, sql, id="2", n=2), done(ADD, id="3", n=3)
    )
    assert [type(outcome) for outcome in written] == [Done, RetryLater, Done]
    failed = written[1]
    assert isinstance(failed, RetryLater)
    assert failed.failure.code == "tx"
    assert failed.failure.error.startswith("tx: ")
    assert await mine(backend) == ["1", "3"]
    assert await statuses(backend) == ["completed", "pending", "completed"]


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        (ADD, "Statement: INSERT INTO mine (id, n) VALUES (:id, :n)"),
        ("INSERT INTO mine (id, n) VALUES (:id, :missing)", ":missing was not given."),
        ("INSERT INTO nowhere  VALUES\n(1)", "nowhere"),
        ("INSERT INTO nowhere  VALUES\n(1)", "Statement: INSERT INTO nowhere VALUES (1)"),
        (
            "INSERT INTO nowhere VALUES ('a secret')",
            "Statement: INSERT INTO nowhere VALUES ('...')",
        ),
        ("INSERT INTO mine (colour) VALUES (1)", "colour"),
        ("DROP TABLE mine", "Statement: DROP TABLE mine"),
        ("", "Statement: empty"),
        (f"INSERT INTO nowhere VALUES ({'1, ' * 500}1)", "1, 1, 1"),
    ],
)
async def test_a_failed_statement_is_named_without_its_values(
    backend: Backend, sql: str, named: str
) -> None:  # N2
    (failed,) = await settle(backend, done(ADD, sql, id="a secret", n=4242))
    assert isinstance(failed, RetryLater)
    error = failed.failure.error
    assert error.startswith("tx: ")
    assert named in error
    assert len(error) < 500
    assert "secret" not in error
    assert "4242" not in error


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1 << 70, "\ud800", 1j])
async def test_a_value_that_sql_cannot_hold_is_named_by_its_parameter(
    backend: Backend, value: object
) -> None:  # N2
    (failed,) = await settle(backend, done(ADD, id="1", n=value))
    assert isinstance(failed, RetryLater)
    assert " :n" in failed.failure.error.partition("Statement")[0]
    assert failed.failure.error.endswith("Statement: INSERT INTO mine (id, n) VALUES (:id, :n)")


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), 1 << 70, "\ud800", 1j])
async def test_a_value_that_sql_cannot_hold_fails_its_event_alone(
    backend: Backend, value: object
) -> None:
    written = await settle(backend, done(ADD, id="1", n=1), done(ADD, id="2", n=value))
    assert [type(outcome) for outcome in written] == [Done, RetryLater]
    assert await mine(backend) == ["1"]


async def test_a_statement_with_too_many_parameters_fails_its_event_alone(
    backend: Backend,
) -> None:
    """PostgreSQL's driver refuses the statement itself: no connection is lost."""
    params: dict[str, Any] = {f"p{n}": "x" for n in range(32_768)}
    many = f"DELETE FROM log WHERE what IN ({', '.join(f':{name}' for name in params)})"
    written = await settle(
        backend, done(ADD, id="1", n=1), done(many, **params), done(ADD, id="3", n=3)
    )
    assert [type(outcome) for outcome in written] == [Done, RetryLater, Done]
    assert backend.store.unavailable_reason is None
    assert await mine(backend) == ["1", "3"]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH v (id) AS (VALUES ('a')) INSERT INTO mine SELECT id, 1 FROM v",
        "INSERT INTO mine (id) VALUES ('a') ON CONFLICT (id) DO UPDATE SET n = mine.n + 1",
        "INSERT INTO log VALUES ('events; COMMIT -- :no')",
        "INSERT INTO log VALUES ('b''; COMMIT') RETURNING what",
        "DELETE FROM mine WHERE id IN (SELECT id FROM mine)",
        "UPDATE mine SET n = abs(-1) /* events */",
        "INSERT INTO mine (id, n) VALUES ('c', CAST('1' AS INTEGER));",
    ],
)
async def test_allowed_statements_run(backend: Backend, sql: str) -> None:
    written = await settle(backend, done(), done(sql))
    assert [type(outcome) for outcome in written] == [Done, Done]


async def test_nothing_is_applied_when_the_claim_was_lost(backend: Backend) -> None:  # F17
    me, other = QueueWorker(backend.store.queue), QueueWorker(backend.store.queue, OTHER)
    await record_in(backend.store, [envelope()])
    stale = await me.claim_one()
    backend.clock.advance(seconds=30)
    fresh = await other.claim_one()
    assert dict(await me.settle(stale, done(ADD, id="stale", n=1))) == {}
    assert await mine(backend) == []
    await other.settle(fresh, done(ADD, id="fresh", n=1))
    assert await mine(backend) == ["fresh"]


async def test_effects_settled_again_are_applied_once(backend: Backend) -> None:
    """The caller settles again when the response to its first call was lost."""
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, [envelope()])
    claim = await me.claim_one()
    outcome = done("INSERT INTO log VALUES ('once')")
    assert dict(await me.settle(claim, outcome)) == {claim.id: outcome}
    assert dict(await me.settle(claim, outcome)) == {claim.id: outcome}
    assert len(await backend.reader.query("SELECT what FROM log", {})) == 1


async def test_effects_free_their_lane(backend: Backend) -> None:
    (written, _) = await settle(backend, done(ADD, id="1", n=1), done(ADD, id="2", n=1))
    assert isinstance(written, Done)
    await record_in(backend.store, [envelope(key, lane="l") for key in ("first", "second")])
    me = QueueWorker(backend.store.queue)
    first = await me.claim_one()
    await me.settle(first, done(ADD, id="3", n=1))
    assert await me.keys() == ["second"]


async def test_effects_that_fail_the_last_attempt_make_a_dead_letter(backend: Backend) -> None:
    last = done("INSERT INTO nowhere VALUES (1)", on_effect_failure=DeadLetter(Failure("", "tx")))
    (written,) = await settle(backend, last)
    assert isinstance(written, DeadLetter)
    assert await statuses(backend) == ["failed"]


async def test_effects_of_concurrent_settlements_are_all_applied(backend: Backend) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(60))
    claims = await me.claim()

    async def end(number: int) -> None:
        await me.settle(claims[number], done(ADD, id=f"{number:02}", n=number))

    await asyncio.gather(*(end(number) for number in range(60)))
    assert await mine(backend) == [f"{number:02}" for number in range(60)]


@pytest.mark.parametrize("sql", ["DROP TABLE events", "nonsense", "DELETE FROM tombstones"])
async def test_a_user_schema_cannot_touch_the_tables_of_ackbox(backend: Backend, sql: str) -> None:
    with pytest.raises(StartupError, match="refused"):
        await backend.store.apply_tables(["CREATE TABLE good (id TEXT)", sql])
    with pytest.raises(InvalidStatement):
        await backend.reader.query("SELECT * FROM good", {})


async def test_a_user_query_returns_rows_by_column_name(backend: Backend) -> None:
    await settle(backend, done(ADD, id="a", n=1), done(ADD, id="b", n=2), retry_later())
    rows = await backend.reader.query("SELECT id, n FROM mine WHERE n > :least", {"least": 1})
    assert rows == [{"id": "b", "n": 2}]


async def test_a_user_query_reads_the_events_and_cannot_change_them(backend: Backend) -> None:
    await record_in(backend.store, [envelope("a"), envelope("b")])
    table = backend.events_table
    sql = f"SELECT idempotency_key AS key FROM {table} WHERE status = :status ORDER BY ledger_id"
    assert await backend.reader.query(sql, {"status": "pending"}) == [{"key": "a"}, {"key": "b"}]
    with pytest.raises(InvalidStatement):
        await backend.reader.query(f"WITH gone AS ({DELETE.format(table)}) TABLE gone", {})
    with pytest.raises(InvalidStatement):
        await backend.reader.query(DELETE.format(table), {})
    assert await statuses(backend) == ["pending", "pending"]


@pytest.mark.parametrize("sql", ["DELETE FROM {}", "INSERT INTO log SELECT status FROM {}"])
async def test_an_effect_cannot_use_the_events(backend: Backend, sql: str) -> None:
    (written,) = await settle(backend, done(sql.format(backend.events_table)))
    assert isinstance(written, RetryLater)
    assert await statuses(backend) == ["pending"]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM mine",
        "INSERT INTO mine (id) VALUES ('x')",
        "nonsense",
        "SELECT :missing",
        "SELECT 1; DELETE FROM mine",
        "",
    ],
)
async def test_a_user_query_changes_nothing(backend: Backend, sql: str) -> None:
    await settle(backend, done(ADD, id="a", n=1))
    with pytest.raises(InvalidStatement):
        await backend.reader.query(sql, {})
    assert await mine(backend) == ["a"]


async def test_an_error_found_only_at_commit_fails_its_event_alone(backend: Backend) -> None:
    await backend.store.apply_tables(
        [
            "CREATE TABLE parent (id TEXT PRIMARY KEY)",
            "CREATE TABLE child (id TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
        ]
    )
    orphan = done("INSERT INTO child VALUES ('nobody')")
    written = await settle(backend, done(ADD, id="1", n=1), orphan, done(ADD, id="2", n=1))
    assert [type(outcome) for outcome in written] == [Done, RetryLater, Done]
    assert await mine(backend) == ["1", "2"]
    assert await statuses(backend) == ["completed", "pending", "completed"]
