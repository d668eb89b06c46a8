"""The SQL that users may run on PostgreSQL."""

import re
from collections.abc import Callable

import pytest

from ackbox.errors import InvalidStatement
from ackbox.stores.postgres.admin.migrator import all_migrations
from ackbox.stores.postgres.admin.rights import OWN_FUNCTIONS, OWN_TABLES
from ackbox.stores.postgres.user_sql import check_effect, check_schema, check_user_query


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
        "INSERT INTO events (audit) SELECT lanes FROM cursors",
        "DELETE FROM public.events",
        'UPDATE "lanes" SET n = 1 FROM shop.tombstones AS promotion',
        "INSERT INTO ackbox VALUES (:ackbox)",
        "INSERT INTO mine VALUES ('ackbox.events') -- ackbox.events",
        "UPDATE ackbox SET n = ackbox.n + 1 WHERE ackbox.id = :id",
        'DELETE FROM mine USING "ackbox" WHERE mine.id = "ackbox".mine_id',
    ],
)
def test_writes_to_the_users_own_tables_are_allowed(sql: str) -> None:
    assert is_allowed(check_effect, sql, "ackbox")


def is_allowed(check: Callable[..., None], *arguments: str) -> bool:
    try:
        check(*arguments)
    except InvalidStatement:
        return False
    return True


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
        "DELETE FROM ackbox.events",
        'DELETE FROM "ackbox"."events"',
        'DELETE FROM this_database . "ackbox" . events',
        "UPDATE mine SET n = 1 FROM AckBox.lanes",
        "INSERT INTO mine SELECT ackbox.refresh_live_events('{1}')",
        'DELETE FROM U&"\\0061ckbox".events',
        'DELETE FROM U&"\\0065vents"',
        "INSERT INTO mine SELECT set_config('role', 'postgres', true)",
        "UPDATE pg_settings SET setting = 'off' WHERE name = 'synchronous_commit'",
        "INSERT INTO mine SELECT pg_advisory_lock(1)",
        "INSERT INTO mine SELECT pg_try_advisory_lock_shared(1)",
        "DELETE FROM mine WHERE id = $1",
        "DELETE FROM mine WHERE id = '\ud800'",
        "DELETE FROM mine WHERE id = 'a\0b'",
        "DELETE/**/FROM/**/ackbox/**/./**/tombstones",
        "DELETE FROM mine WHERE true RETURNING (SELECT 1 FROM ackbox.Schema_Migrations)",
    ],
)
def test_every_other_statement_is_refused(sql: str) -> None:
    with pytest.raises(InvalidStatement, match=r"^tx: "):
        check_effect(sql, "ackbox")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "TABLE mine",
        "VALUES (1)",
        "SELECT 1;",
        "SELECT * FROM ackbox.events",
        'TABLE "ackbox".audit',
    ],
)
def test_a_user_query_is_one_select(sql: str) -> None:
    assert is_allowed(check_user_query, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "DELETE FROM mine",
        "SELECT 1; SELECT 2",
        "SET x = 1",
        "BEGIN",
        "WITH a AS (x)",
        'SELECT 1 FROM U&"\\0061".b',
        "SELECT 'a\0b'",
        "SELECT '\ud800'",
    ],
)
def test_any_other_user_query_is_refused(sql: str) -> None:
    with pytest.raises(InvalidStatement, match=r"inbox\.read"):
        check_user_query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP OWNED BY CURRENT_USER",
        "drop/**/owned BY shop CASCADE",
        "REASSIGN OWNED BY shop TO other",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; DROP OWNED BY shop",
        "CREATE FUNCTION f() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM ackbox.events; END",
        "DROP TABLE ackbox.events",
        "ALTER TABLE ackbox.lanes ADD x int",
        "CREATE TRIGGER t BEFORE INSERT ON ackbox.events EXECUTE FUNCTION f()",
        "CREATE TABLE mine (id bigint REFERENCES ackbox.events)",
        "CREATE TABLE a (); DROP TABLE ackbox.audit",
        "DROP SCHEMA shop, ackbox CASCADE",
        "DROP SCHEMA IF EXISTS ackbox",
        "CREATE SCHEMA IF NOT EXISTS ackbox",
        "CREATE SCHEMA AUTHORIZATION ackbox",
        "CREATE SCHEMA IF NOT EXISTS AUTHORIZATION ackbox",
        "ALTER SCHEMA ackbox RENAME TO other",
        "COMMENT ON SCHEMA ackbox IS 'mine'",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA shop, AckBox GRANT SELECT ON TABLES TO PUBLIC",
        "CREATE EXTENSION hstore WITH SCHEMA ackbox",
        "CREATE TABLE ackbox.mine (id int)",
        "CREATE TABLE IF NOT EXISTS ackbox.mine AS SELECT 1",
        "CREATE FUNCTION ackbox.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP TABLE mine, ackbox.mine",
        "DROP FUNCTION mine(int), ackbox.mine(int)",
        "DROP INDEX ackbox.events_key",
        "CREATE VIEW mine AS SELECT * FROM ackbox.events",
        "CREATE TABLE mine (LIKE ackbox.events)",
        "WITH a AS (SELECT 1) SELECT * INTO ackbox.mine FROM a",
        "DELETE FROM ackbox.events",
        "ALTER TABLE mine SET SCHEMA ackbox",
        'GRANT SELECT ON ALL TABLES IN SCHEMA "ackbox" TO PUBLIC',
        "COMMIT",
        "SET ROLE other",
    ],
)
def test_a_users_schema_cannot_change_ackboxs_tables(sql: str) -> None:
    with pytest.raises(InvalidStatement, match=r"inbox\.schema"):
        check_schema(sql, "ackbox")


@pytest.mark.parametrize(
    "sql",
    [
        "GRANT USAGE ON SCHEMA billing TO ackbox",
        "CREATE SCHEMA billing AUTHORIZATION ackbox",
        "CREATE TABLE t (schema text, ackbox text)",
        'CREATE TABLE "schema" (ackbox text)',
        "ALTER TABLE t ADD schema text, ADD ackbox text",
        "CREATE VIEW v AS SELECT ackbox.id FROM ackbox",
        "CREATE TABLE ackbox (n int CHECK (ackbox.n > 0))",
        "ALTER TABLE ackbox ALTER n TYPE bigint USING ackbox.n::bigint",
        "UPDATE ackbox SET n = ackbox.n + 1",
        "INSERT INTO t SELECT schema, ackbox FROM ackbox",
        "GRANT SELECT ON mine TO ackbox",
    ],
)
def test_a_users_schema_may_use_the_word_for_its_own_things(sql: str) -> None:
    assert is_allowed(check_schema, sql, "ackbox")


def test_a_refusal_names_the_schema_that_is_reserved() -> None:
    with pytest.raises(InvalidStatement) as refused:
        check_schema("CREATE TABLE orders.mine (id int)", "orders")
    assert str(refused.value) == (
        "inbox.schema: the schema orders is ackbox's own, and your SQL may not name it."
    )


def test_a_users_table_and_column_may_have_the_name_of_one_of_ours() -> None:
    sql = "CREATE TABLE lanes (key text, events bigint); DROP TABLE audit"
    assert is_allowed(check_schema, sql, "ackbox")


def test_a_users_schema_may_have_several_statements() -> None:
    assert is_allowed(check_schema, "CREATE TABLE a (id int); CREATE INDEX ON a (id);", "ackbox")


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END",
        "CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC INSERT INTO a VALUES (1); END; DROP TABLE b",
        "CREATE FUNCTION f(n int) RETURNS int LANGUAGE sql BEGIN ATOMIC "
        "SELECT CASE WHEN n > 0 THEN 1 ELSE CASE n WHEN 0 THEN 2 END END; SELECT ackbox.n FROM a "
        "AS ackbox; END; CREATE TABLE b (id int)",
    ],
)
def test_a_users_function_may_have_several_statements(sql: str) -> None:
    assert is_allowed(check_schema, sql, "ackbox")


def test_the_rights_on_every_table_of_ackbox_are_checked() -> None:
    created = {
        name
        for migration in all_migrations()
        for name in re.findall(r"CREATE TABLE \{schema\}\.(\w+)", migration.sql)
    }
    assert created | {"schema_migrations"} == OWN_TABLES


def test_every_function_of_ackbox_is_known() -> None:
    created = {
        name
        for migration in all_migrations()
        for name in re.findall(r"CREATE FUNCTION \{schema\}\.(\w+)", migration.sql)
    }
    assert created == OWN_FUNCTIONS
