"""`Operations.apply_tables`: changes to users' own tables, each applied once (N12)."""

import asyncio
from collections.abc import Sequence

import pytest

from ackbox.errors import InvalidStatement, StartupError
from ackbox.model import InboxMigration
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, record_in

CREATE = InboxMigration("0001_orders", "CREATE TABLE orders (id TEXT PRIMARY KEY)")
ADD = InboxMigration(
    "0002_add_total",
    "ALTER TABLE orders ADD COLUMN total INTEGER; INSERT INTO orders VALUES ('first', 1)",
)
DOUBLE = InboxMigration("0003_double", "UPDATE orders SET total = total * 2")
ALL = [CREATE, ADD, DOUBLE]
TOTALS = "SELECT id, total FROM orders ORDER BY id"


async def apply(backend: Backend, *declared: InboxMigration) -> Sequence[str]:
    return await backend.store.apply_tables([], declared)


async def pending(backend: Backend, *declared: InboxMigration) -> Sequence[str]:
    return await backend.reader.pending_migrations(declared)


async def test_migrations_run_once_in_the_order_of_their_declaration(
    backend: Backend,
) -> None:  # N12
    assert await pending(backend, *ALL) == ["0001_orders", "0002_add_total", "0003_double"]
    assert await apply(backend, *ALL) == ["0001_orders", "0002_add_total", "0003_double"]
    assert await apply(backend, *ALL) == []
    assert await pending(backend, *ALL) == []
    assert await backend.reader.query(TOTALS, {}) == [{"id": "first", "total": 2}]


async def test_only_new_migrations_run(backend: Backend) -> None:
    await apply(backend, CREATE, ADD)
    assert await pending(backend, *ALL) == ["0003_double"]
    assert await apply(backend, *ALL) == ["0003_double"]
    assert await backend.reader.query(TOTALS, {}) == [{"id": "first", "total": 2}]


async def test_no_migration_is_no_work(backend: Backend) -> None:
    assert await apply(backend) == []
    assert await pending(backend) == []


async def test_an_applied_migration_may_be_dropped_from_the_code(backend: Backend) -> None:
    """During an update, an older release of the application may start too."""
    await apply(backend, CREATE, ADD)
    assert await apply(backend, DOUBLE) == ["0003_double"]


async def test_changed_sql_of_an_applied_migration_stops_the_start(backend: Backend) -> None:
    await apply(backend, CREATE)
    changed = InboxMigration(CREATE.name, CREATE.sql.replace("id TEXT", "id INTEGER"))
    for call in (apply(backend, changed, ADD), pending(backend, changed)):
        with pytest.raises(StartupError) as refused:
            await call
        message = str(refused.value)
        assert message.startswith("inbox.migration('0001_orders') was applied with other SQL")
        assert "a new migration" in message
        assert "\n" not in message
    assert await pending(backend, CREATE, ADD) == ["0002_add_total"]


async def test_a_failing_migration_leaves_nothing_and_stops_those_after_it(
    backend: Backend,
) -> None:
    failing = InboxMigration("0002_bad", "CREATE TABLE half (n INTEGER); DROP TABLE nowhere")
    with pytest.raises(StartupError, match=r"inbox\.migration\('0002_bad'\) is refused: .*nowhere"):
        await apply(backend, CREATE, failing, ADD)
    assert await pending(backend, CREATE, failing, ADD) == ["0002_bad", "0002_add_total"]
    with pytest.raises(InvalidStatement):
        await backend.reader.query("SELECT * FROM half", {})
    assert await apply(backend, CREATE, ADD) == ["0002_add_total"]


async def test_a_deferred_constraint_fails_its_migration_by_name(backend: Backend) -> None:
    orphan = InboxMigration(
        "0001_orphan",
        "CREATE TABLE parent (id TEXT PRIMARY KEY);"
        "CREATE TABLE child (id TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);"
        "INSERT INTO child VALUES ('nobody')",
    )
    with pytest.raises(StartupError, match="0001_orphan"):
        await apply(backend, orphan)
    assert await pending(backend, orphan) == ["0001_orphan"]


async def test_starts_at_the_same_time_apply_each_migration_once(backend: Backend) -> None:
    applied = await asyncio.gather(*(apply(backend, *ALL) for _ in range(6)))
    assert sorted(name for names in applied for name in names) == [each.name for each in ALL]
    assert await backend.reader.query(TOTALS, {}) == [{"id": "first", "total": 2}]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM {}events",
        "UPDATE {}inbox_migrations SET checksum = ''",
        "INSERT INTO {}inbox_migrations VALUES ('0009', '', '2026-01-31T12:00:00.000000Z')",
        "DROP TABLE {}inbox_migrations",
        "CREATE TABLE copies AS SELECT idempotency_key FROM {}events",
        "CREATE TABLE more (id TEXT); INSERT INTO more SELECT idempotency_key FROM {}events",
        "ALTER TABLE {}events ADD COLUMN mine TEXT",
        "CREATE INDEX mine ON {}events (updated_at)",
        "COMMIT",
        "CREATE TABLE half (n INTEGER); COMMIT; DROP TABLE nowhere",
        "ROLLBACK",
        "SAVEPOINT mine",
        "PRAGMA foreign_keys = off",
        "SET search_path = ackbox",
    ],
)
async def test_the_tables_of_ackbox_are_out_of_reach(backend: Backend, sql: str) -> None:
    await record_in(backend.store, [envelope("kept")])
    schema = backend.events_table.removesuffix("events")
    with pytest.raises(StartupError, match=r"inbox\.migration\('0001_evil'\) is refused: ") as e:
        await apply(backend, InboxMigration("0001_evil", sql.format(schema)))
    assert "\n" not in str(e.value)
    assert [row["idempotency_key"] for row in await backend.rows()] == ["kept"]
    assert await pending(backend, CREATE) == ["0001_orders"]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders ADD COLUMN size INTEGER NOT NULL DEFAULT 0 CHECK (size >= 0)",
        "ALTER TABLE orders RENAME COLUMN total TO amount",
        "ALTER TABLE orders DROP COLUMN total",
        "ALTER TABLE orders RENAME TO sales",
        "CREATE UNIQUE INDEX by_total ON orders (total)",
        "CREATE TABLE copies AS SELECT id FROM orders; DROP TABLE orders",
        "DELETE FROM orders",
        "-- only a comment",
    ],
)
async def test_own_tables_may_change_in_any_way(backend: Backend, sql: str) -> None:
    await apply(backend, CREATE, ADD)
    assert await apply(backend, InboxMigration("0004_more", sql)) == ["0004_more"]
