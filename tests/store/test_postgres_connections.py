"""A new connection to PostgreSQL costs the server as little as possible."""

import asyncpg

from support.ledgers.postgres_backend import PostgresBackend, connect_for_tests

ARRAYS = "SELECT $1::int8[] AS numbers, $2::uuid[] AS ids, $3::bytea[] AS texts"
USERS_TYPE = "CREATE TYPE mood AS ENUM ('good', 'bad')"


async def queries_of_a_new_connection(url: str, sql: str, *values: object) -> list[str]:
    """Return the queries that the driver sends for this query on a new connection."""
    queries: list[str] = []

    def log(record: asyncpg.connection.LoggedQuery) -> None:
        queries.append(record.query)

    connection = await connect_for_tests(url)
    with connection.query_logger(log):
        await connection.fetch(sql, *values)
    await connection.close()
    return queries


async def test_only_the_first_connection_asks_for_types_of_the_server(
    backend: PostgresBackend,
) -> None:
    values: tuple[object, ...] = ([1], [], [b"a"])
    await queries_of_a_new_connection(backend.url, ARRAYS, *values)
    again = await queries_of_a_new_connection(backend.url, ARRAYS, *values)
    assert again == [ARRAYS]


async def test_each_connection_asks_for_types_of_users(backend: PostgresBackend) -> None:
    """A user's type may be dropped, and another may get its number."""
    await backend.fetch(USERS_TYPE)
    sql = "SELECT $1::mood[]"
    for values in ("good", "bad"):
        queries = await queries_of_a_new_connection(backend.url, sql, [values])
        assert queries[-1] == sql
        assert len(queries) > 1
    await backend.fetch("DROP TYPE mood")
