"""Migrations: numbered SQL, each applied in one transaction and never altered afterwards (P11)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.errors import SchemaMismatch
from ackbox.model import Status
from ackbox.stores.sqlite.files import open_ledger
from ackbox.stores.sqlite.migrations import Migration, all_migrations, apply, as_sql, pending
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in

ALL = all_migrations()
NEXT = ALL[-1].version + 1


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(":memory:")) as opened:
        yield opened


def schema(connection: apsw.Connection) -> list[Any]:
    return connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name"
    ).fetchall()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.version for migration in ALL] == list(range(1, len(ALL) + 1))


def test_applying_again_changes_nothing(connection: apsw.Connection) -> None:
    assert apply(connection, ALL) == ALL
    before = schema(connection)
    assert apply(connection, ALL) == []
    assert schema(connection) == before
    assert pending(connection, ALL) == []


def test_the_printed_sql_creates_the_same_schema_and_needs_no_migration(  # P11
    connection: apsw.Connection,
) -> None:
    connection.execute(as_sql(ALL))
    with closing(apsw.Connection(":memory:")) as applied:
        apply(applied, ALL)
        assert schema(connection) == schema(applied)
        for table in ("status_counts", "cursors", "events"):
            rows = [list(c.execute(f"SELECT * FROM {table}")) for c in (connection, applied)]
            assert rows[0] == rows[1]
    assert pending(connection, ALL) == []


def test_only_what_is_missing_is_applied(connection: apsw.Connection) -> None:
    apply(connection, ALL)
    more = Migration(NEXT, "more", "CREATE TABLE more (n);")
    assert pending(connection, [*ALL, more]) == [more]
    assert apply(connection, [*ALL, more]) == [more]
    assert connection.table_exists(None, "more")


@pytest.mark.parametrize(
    "rest", ["CREATE TABLE events (n);", "INSERT INTO nowhere VALUES (1);", "THIS IS NO SQL;"]
)
def test_a_failing_migration_leaves_nothing(connection: apsw.Connection, rest: str) -> None:
    apply(connection, ALL)
    before = schema(connection)
    status_counts = list(connection.execute("SELECT * FROM status_counts"))
    bad = Migration(NEXT, "bad", f"CREATE TABLE half (n); DELETE FROM status_counts; {rest}")
    with pytest.raises(apsw.SQLError):
        apply(connection, [*ALL, bad])
    assert schema(connection) == before
    assert list(connection.execute("SELECT * FROM status_counts")) == status_counts
    assert not connection.in_transaction
    assert pending(connection, [*ALL, bad]) == [bad]


def test_migrations_before_the_failing_one_stay(connection: apsw.Connection) -> None:
    good = Migration(NEXT, "good", "CREATE TABLE good (n);")
    bad = Migration(NEXT + 1, "bad", "nonsense;")
    with pytest.raises(apsw.SQLError):
        apply(connection, [*ALL, good, bad])
    assert pending(connection, [*ALL, good, bad]) == [bad]


async def test_a_newer_schema_is_refused_and_left_as_it_is(path: Path) -> None:
    connection = open_ledger(path, durability="full")
    apply(connection, [*ALL, Migration(NEXT, "from_the_future", "CREATE TABLE future (n);")])
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=f"{NEXT:04} from_the_future.*newer"):
        await open_sqlite(path)
    assert path.read_bytes() == before


async def test_an_altered_migration_is_refused(path: Path) -> None:
    connection = open_ledger(path, durability="full")
    connection.execute("UPDATE schema_migrations SET checksum = 'other' WHERE version = 1")
    connection.close()
    with pytest.raises(SchemaMismatch, match="checksum"):
        await open_sqlite(path)


def test_applied_at_has_the_width_of_all_times(connection: apsw.Connection) -> None:  # W9
    apply(connection, ALL)
    width = connection.execute("SELECT DISTINCT length(applied_at) FROM schema_migrations").get
    assert width == len("2026-01-31T12:00:00.000000Z")


W9 = {
    "id",
    "idempotency_key",
    "event_type",
    "payload",
    "status",
    "attempts",
    "last_error",
    "retry_after",
    "created_at",
    "updated_at",
}


def test_the_table_has_the_required_columns(connection: apsw.Connection) -> None:  # W9
    apply(connection, ALL)
    columns = connection.execute("SELECT name FROM pragma_table_info('events')").fetchall()
    assert {name for (name,) in columns} >= W9


async def test_a_status_outside_the_four_is_refused(path: Path) -> None:  # W9
    store = await open_sqlite(path)
    sent = envelope()
    await record_in(store, [sent])
    await store.close()
    with closing(open_ledger(path, durability="full")) as connection:
        for status in Status:
            connection.execute("UPDATE events SET status = ?", (status,))
        for wrong in ("received", "", None, "PENDING"):
            with pytest.raises(apsw.ConstraintError):
                connection.execute("UPDATE events SET status = ?", (wrong,))


def test_a_count_below_zero_is_refused(connection: apsw.Connection) -> None:  # W9
    apply(connection, ALL)
    with pytest.raises(apsw.ConstraintError):
        connection.execute("UPDATE status_counts SET events = events - 1")


@pytest.mark.parametrize("own", ["TABLE Submissions (id)", "VIEW submissions AS SELECT 1"])
def test_a_name_that_users_took_before_is_reported_with_what_to_do(
    connection: apsw.Connection, own: str
) -> None:
    apply(connection, ALL[:3])
    connection.execute(f"CREATE {own}")
    with pytest.raises(SchemaMismatch, match="Rename your table") as refused:
        apply(connection, ALL)
    if own.startswith("TABLE"):
        connection.execute(str(refused.value).partition("code: ")[2].partition(".")[0])
        apply(connection, ALL)
        assert pending(connection, ALL) == []
