"""What SQL of the user's own may do on PostgreSQL."""

import re

import pytest

from ackbox.errors import InvalidStatement
from ackbox.stores.postgres.migrator import all_migrations
from ackbox.stores.postgres.user_sql import OWN_TABLES, check_effect, check_schema, check_user_query


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO mine VALUES (1)",
        "  -- first\n update mine SET n = 1 WHERE id = :id;",
        "DELETE FROM mine USING other WHERE mine.id = other.id",
        "WITH a AS (SELECT 1), b AS (SELECT 2) INSERT INTO mine SELECT * FROM a, b",
        "WITH gone AS (DELETE FROM mine RETURNING id) INSERT INTO log SELECT id FROM gone",
        "INSERT INTO mine SELECT ARRAY(SELECT 1), 'events', $$status_counts$$ -- audit",
        "INSERT INTO shop.orders VALUES (:lane)",
    ],
)
def test_writes_on_tables_of_ones_own_are_allowed(sql: str) -> None:
    check_effect(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        ";",
        "SELECT 1",
        "WITH a AS (DELETE FROM mine RETURNING 1) SELECT * FROM a",
        "WITH a AS (SELECT 1) SELECT 1 UPDATE",
        "MERGE INTO mine USING other ON true WHEN MATCHED THEN DELETE",
        "TRUNCATE mine",
        "COPY mine FROM PROGRAM 'x'",
        "DO $$ BEGIN DELETE FROM mine; END $$",
        "CALL procedure()",
        "SET ROLE other",
        "RESET ALL",
        "LISTEN ackbox",
        "EXPLAIN ANALYZE DELETE FROM mine",
        "PREPARE x AS DELETE FROM mine",
        "CREATE TABLE x AS SELECT 1",
        "LOCK mine",
        "DELETE FROM mine; DELETE FROM mine",
        "DELETE FROM mine --\r; COMMIT",  # S11
        "DELETE FROM public.events",
        'DELETE FROM "public"."events"',
        'UPDATE mine SET n = 1 FROM "lanes"',
        'DELETE FROM U&"\\0065vents"',
        "INSERT INTO mine SELECT set_config('role', 'postgres', true)",
        "UPDATE pg_settings SET setting = 'off' WHERE name = 'synchronous_commit'",
        "INSERT INTO mine SELECT pg_advisory_lock(1)",
        "INSERT INTO mine SELECT pg_try_advisory_lock_shared(1)",
        "DELETE FROM mine WHERE id = $1",
        "DELETE FROM mine WHERE id = '\ud800'",
        "DELETE/**/FROM/**/tombstones",
        "DELETE FROM mine WHERE true RETURNING (SELECT 1 FROM Schema_Migrations)",
    ],
)
def test_all_else_is_refused(sql: str) -> None:
    with pytest.raises(InvalidStatement, match=r"^tx: "):
        check_effect(sql)


@pytest.mark.parametrize(
    "sql",
    ["SELECT 1", "WITH a AS (SELECT 1) SELECT * FROM a", "TABLE mine", "VALUES (1)", "SELECT 1;"],
)
def test_a_question_is_one_select(sql: str) -> None:
    check_user_query(sql)


@pytest.mark.parametrize(
    "sql", ["", "DELETE FROM mine", "SELECT 1; SELECT 2", "SET x = 1", "BEGIN", "WITH a AS (x)"]
)
def test_a_question_is_nothing_else(sql: str) -> None:
    with pytest.raises(InvalidStatement, match=r"inbox\.read"):
        check_user_query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE events",
        "ALTER TABLE lanes ADD x int",
        "CREATE TRIGGER t BEFORE INSERT ON events EXECUTE FUNCTION f()",
        "CREATE TABLE mine (id bigint REFERENCES events)",
        "CREATE TABLE a (); DROP TABLE audit",
        "COMMIT",
        "SET ROLE other",
    ],
)
def test_a_schema_leaves_ackbox_alone(sql: str) -> None:
    with pytest.raises(InvalidStatement, match=r"inbox\.schema"):
        check_schema(sql)


def test_a_column_of_a_name_of_ours_is_told_what_to_do() -> None:
    """Which names are tables, only the server could say."""
    with pytest.raises(InvalidStatement) as refused:
        check_schema("CREATE TABLE stats (key text, events bigint)")
    assert str(refused.value) == (
        "inbox.schema: events is a name of ackbox's own. On PostgreSQL nothing in your SQL may "
        "have it, be it a table, a column or an alias: choose another."
    )


def test_a_schema_may_hold_several_statements() -> None:
    check_schema("CREATE TABLE a (id int); CREATE INDEX ON a (id);")


def test_every_table_of_ours_is_guarded() -> None:
    made = {
        name
        for migration in all_migrations()
        for name in re.findall(r"CREATE TABLE (\w+)", migration.sql)
    }
    assert made <= OWN_TABLES
