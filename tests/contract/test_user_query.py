"""`Reader.query`: the user's own SELECT, which changes nothing and says what is wrong with it."""

import pytest

from ackbox.errors import InvalidStatement
from ackbox.model import EventFilter, Order
from support.ledgers.backends import Backend, record


@pytest.fixture(autouse=True)
async def tables(backend: Backend) -> None:
    await backend.store.apply_tables(["CREATE TABLE mine (id TEXT PRIMARY KEY, n INTEGER)"])


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TEMP TABLE events AS SELECT 1",
        "CREATE TEMP VIEW status_counts AS SELECT 'pending' AS status, 999 AS count",
        "SELECT 1; SELECT 2",
        "SELECT 1; CREATE TEMP TABLE events (id TEXT)",
        "WITH a AS (SELECT 1) DELETE FROM mine",
        "INSERT INTO mine VALUES ('a', 1)",
        "-- nothing",
        ";",
        "",
    ],
)
async def test_only_one_select_is_a_query(backend: Backend, sql: str) -> None:
    """Connections are shared: a temporary table would hide ackbox's own from later reads."""
    await record(backend, "a")
    for _ in range(4):  # on each connection
        with pytest.raises(InvalidStatement, match=r"^inbox\.read"):
            await backend.reader.query(sql, {})
    page = await backend.reader.events(EventFilter(), order=Order.OLDEST, limit=9)
    assert len(page.items) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS n;",
        "  -- first\n SELECT 1 AS n /* ; */ ; -- last",
        "WITH a (n) AS (VALUES (1)) SELECT n FROM a",
        "SELECT count(*) AS n FROM (SELECT ';' AS id) AS a WHERE id = ';'",
    ],
)
async def test_a_select_is_a_query(backend: Backend, sql: str) -> None:
    assert await backend.reader.query(sql, {}) == [{"n": 1}]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT 'a\0b' AS x", 1),
        ("SELECT 1\0 garbage", 1),
        ("SELECT '\ud800' AS x", 1),
        ("SELECT :value AS x", "\ud800"),
        ("SELECT n FROM mine WHERE n = :value", [1]),
        ("SELECT " + ", ".join(f"1 AS c{n}" for n in range(3000)), 1),
        ("SELECT :missing AS x", 1),
    ],
    ids=["nul", "nul after", "surrogate", "surrogate value", "list", "columns", "missing"],
)
async def test_a_query_that_cannot_run_is_an_invalid_statement(
    backend: Backend, sql: str, value: object
) -> None:
    with pytest.raises(InvalidStatement, match=r"^inbox\.read"):
        await backend.reader.query(sql, {"value": value})


async def test_the_error_of_a_query_shows_no_value(backend: Backend) -> None:
    """It becomes the `last_error` of a run, which is logged."""
    for sql in ("SELECT n FROM mine WHERE n = :v", "SELECT CAST(:v AS INTEGER) FROM nowhere"):
        with pytest.raises(InvalidStatement) as refused:
            await backend.reader.query(sql, {"v": ["a secret"]})
        assert "secret" not in str(refused.value)
