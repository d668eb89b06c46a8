"""A PostgreSQL ledger in a schema of its own (`DATABASE_SCHEMA`), beside users' tables and other
ledgers."""

import subprocess
from collections import Counter
from functools import partial

import pytest

from ackbox.errors import StartupError, StoreError
from ackbox.model import Done, ReceiptKind
from ackbox.stores.postgres.admin import rights
from ackbox.stores.postgres.read.read_horizon import last_readable, nearest
from ackbox.stores.postgres.statements import lock_key
from ackbox.stores.postgres.write import record
from ackbox.stores.postgres.write.queue import PostgresQueue
from support.databases.guarded import clean_environment
from support.databases.postgres_cli import Open, PostgresLedger, keys, role
from support.ledgers.events import envelope, envelopes, record_in
from support.time.polling import until
from support.workers.queue_worker import QueueWorker, done

LONG = "a_schema_name_as_long_as_postgresql_takes_them_" + "x" * 16


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
        await until(lambda: wakes[peer.queue] > before[peer.queue])
        before[peer.queue] = wakes[peer.queue]
    assert wakes[other.queue] == before[other.queue]


@pytest.mark.parametrize("purpose", ["migrate", "compact counts"])
async def test_no_ledger_waits_for_a_lock_of_another(
    ledger: PostgresLedger, opened: Open, purpose: str
) -> None:
    first = await opened("first")
    async with first.database.transaction() as session:
        await session.fetch("lock", key=lock_key("first", purpose))
        second = await opened("second")
        await second.apply_tables(["CREATE TABLE mine (id int)"])
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
    await store.apply_tables(["CREATE TABLE mine (id text)"])
    await record_in(store, [envelope("a", lane="one")])
    worker = QueueWorker(store.queue)
    claim = await worker.claim_one()
    written = await worker.settle(claim, done("INSERT INTO mine VALUES (:id)", id="a"))
    assert isinstance(written[claim.id], Done)
    created = f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'"
    assert ledger.execute(created) == str(len(rights.OWN_TABLES))
    assert await keys(ledger, schema) == ["a"]


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


async def test_a_restored_dump_is_the_same_ledger(ledger: PostgresLedger, opened: Open) -> None:
    store = await opened("inbox")
    await store.apply_tables(["CREATE TABLE mine (id text)"])
    await record_in(store, [envelope("a", b"[1]", lane="one"), envelope("b", lane="one")])
    restored = PostgresLedger(ledger.server)
    try:
        dump_and_restore(ledger, restored)
        reopened = await opened("inbox", url=restored.url)
        await reopened.apply_tables(["CREATE TABLE IF NOT EXISTS mine (id text)"])
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


async def test_a_schema_that_was_renamed_is_refused(ledger: PostgresLedger, opened: Open) -> None:
    """Its functions still name the tables by the former name."""
    await (await opened("first")).close()
    ledger.execute("ALTER SCHEMA first RENAME TO second")
    with pytest.raises(StoreError, match=r"ALTER SCHEMA second RENAME TO first$"):
        await opened("second")
    ledger.execute("ALTER SCHEMA second RENAME TO first")
    await record_in(await opened("first"), envelopes(1))


async def test_a_role_that_may_not_create_tables_is_told_the_grant(
    ledger: PostgresLedger, opened: Open
) -> None:
    ledger.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with role(ledger, "clerk", "CREATE SCHEMA ackbox AUTHORIZATION clerk") as url:
        store = await opened(url=url)
        with pytest.raises(StartupError, match=r"GRANT USAGE, CREATE ON SCHEMA public TO clerk\.$"):
            await store.apply_tables(["CREATE TABLE mine (id int)"])
        ledger.execute("GRANT USAGE, CREATE ON SCHEMA public TO clerk")
        await store.apply_tables(["CREATE TABLE mine (id int)"])
        await store.close()
