"""An event column is declared once, and adding one touches four files."""

import re
from pathlib import Path

import apsw
import pytest

from ackbox.model import Claim, Envelope, EventRecord
from ackbox.stores.columns import EVENT_COLUMNS, Kind
from ackbox.stores.postgres.admin import migrator
from ackbox.stores.sqlite import migrations

SOURCES = Path(__file__).parents[2] / "src/ackbox"
SQLITE_TYPES = {
    Kind.INTEGER: "INTEGER",
    Kind.TEXT: "TEXT",
    Kind.TIME: "TEXT",
    Kind.UUID: "TEXT",
    Kind.JSON: "TEXT",
    Kind.BYTES: "BLOB",
}
POSTGRES_KINDS = {
    "bigint": Kind.INTEGER,
    "integer": Kind.INTEGER,
    "text": Kind.TEXT,
    "timestamptz": Kind.TIME,
    "uuid": Kind.UUID,
    "jsonb": Kind.JSON,
    "bytea": Kind.BYTES,
}
NO_COLUMNS = {"received_at", "payload_bytes", "fingerprint"}
"""Fields that are computed, or stored in several columns or in another table."""

USERS = {
    "cli/event_filters.py",
    "cli/event_operations.py",
    "cli/events_import.py",
    "http/request_models.py",
    "model/queries.py",
    "model/sent_events.py",
    "stores/paging.py",
    "stores/sqlite/read/event_detail.py",
    "stores/sqlite/sql/reader.sql",
    "stores/postgres/read/event_detail.py",
    "stores/postgres/sql/reader.sql",
    "stores/transfer.py",
    "stores/sqlite/sql/transfer_out.sql",
    "stores/postgres/sql/transfer_in.sql",
    "stores/sqlite/migrations/0004_submissions.sql",
    "stores/sqlite/sql/submissions.sql",
    "stores/postgres/migrations/0004_submissions.sql",
    "stores/postgres/sql/submissions.sql",
    "stores/sqlite/migrations/0006_fingerprints.sql",
    "stores/sqlite/sql/ledger.sql",
    "stores/postgres/migrations/0006_fingerprints.sql",
    "stores/postgres/sql/ledger.sql",
}
"""The files that set or find `parent_id`. A column that no code uses needs none of them."""


def test_adding_a_column_touches_four_files() -> None:
    files = [path for path in SOURCES.rglob("*") if path.suffix in (".py", ".sql")]
    spelled = {
        path.relative_to(SOURCES).as_posix() for path in files if "parent_id" in path.read_text()
    }
    assert spelled - USERS == {
        "model/events.py",
        "stores/columns.py",
        "stores/sqlite/migrations/0002_parent_id.sql",
        "stores/postgres/migrations/0002_parent_id.sql",
        "sources/webhook.py",  # the one place that gives the column a value
    }


def test_the_migrations_of_sqlite_make_the_declared_columns() -> None:
    connection = apsw.Connection(":memory:")
    migrations.apply(connection, migrations.all_migrations())
    found = {row[1]: row[2] for row in connection.execute("PRAGMA table_info(events)")}
    assert found == {name: SQLITE_TYPES[kind] for name, kind in EVENT_COLUMNS.items()}


def test_the_migrations_of_postgresql_make_the_declared_columns() -> None:
    sql = "\n".join(migration.sql for migration in migrator.all_migrations())
    created = re.search(r"CREATE TABLE \{schema\}\.events \((.*?)\n\)", sql, re.DOTALL)
    assert created is not None
    added = re.findall(r"ALTER TABLE \{schema\}\.events ADD COLUMN (\w+) (\w+)", sql)
    columns = dict([*re.findall(r"^    (\w+) +(\w+)", created[1], re.MULTILINE), *added])
    assert columns.pop("payload_json") == "jsonb"
    assert {name: POSTGRES_KINDS[each] for name, each in columns.items()} == EVENT_COLUMNS


@pytest.mark.parametrize("value", [Envelope, Claim, EventRecord])
def test_the_fields_of_the_model_are_columns(value: type[Envelope | Claim | EventRecord]) -> None:
    assert set(value.__struct_fields__) - NO_COLUMNS <= EVENT_COLUMNS.keys()
