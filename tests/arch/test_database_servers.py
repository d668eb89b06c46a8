"""Other tests rely on real servers of several versions, which end with the tests."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from support.databases.postgres import Install, PostgresServer, find_installs, running_postgres
from support.databases.valkey import ValkeyServer, running_valkey
from support.time.polling import eventually

ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"
IS_BUSY = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~ 'generate_s[e]'"
STARTS_AND_WAITS = """
import sys
from pathlib import Path
from support.databases.postgres import PostgresServer, find_installs

server = PostgresServer(find_installs()[-1], Path(sys.argv[1]))
server.initialise()
server.start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=find_installs(), ids=str)
def install(request: pytest.FixtureRequest) -> Install:
    parameter: Install = request.param
    return parameter


@pytest.fixture(scope="module")
def own(install: Install) -> Iterator[PostgresServer]:
    with running_postgres(install) as server:
        yield server


def test_both_versions_of_the_wheel_are_there() -> None:
    assert {16, 18} <= {install.major for install in find_installs()}


async def test_each_version_responds(
    install: Install, postgres_of: Callable[[Install], PostgresServer]
) -> None:
    server = postgres_of(install)
    assert await fetch(server.url(), "SELECT 1") == 1
    version = str(await fetch(server.url(), "SHOW server_version"))
    assert version.startswith(f"{install.major}.")


async def test_a_commit_is_real(
    install: Install, postgres_of: Callable[[Install], PostgresServer]
) -> None:
    url = postgres_of(install).url()
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        assert await fetch(url, f"SHOW {setting}") == "on"


async def test_a_database_is_new_each_time(
    install: Install, postgres_of: Callable[[Install], PostgresServer]
) -> None:
    server = postgres_of(install)
    first, second = server.create_database(), server.create_database()
    await fetch(first, "CREATE TABLE seen ()")
    assert await fetch(second, "SELECT to_regclass('seen')") is None
    server.recycle_database(second)
    server.recycle_database(first)
    again = server.create_database()
    assert again == first
    assert await fetch(again, "SELECT to_regclass('seen')") is None
    server.recycle_database(again)


async def test_a_crash_loses_connections_but_no_commit(own: PostgresServer) -> None:
    await fetch(own.url(), "CREATE TABLE seen AS SELECT 1 AS kept")
    connection = await asyncpg.connect(own.url())
    own.kill()
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await connection.fetchval("SELECT 1")
    with pytest.raises(OSError, match="onnect"):
        await asyncpg.connect(own.url())
    own.restart()
    assert await fetch(own.url(), "SELECT kept FROM seen") == 1
    assert "was not properly shut down" in own.log


async def test_a_crash_ends_a_query_at_once(own: PostgresServer) -> None:
    busy = asyncio.create_task(fetch(own.url(), ENDLESS))
    await asyncio.to_thread(eventually, lambda: own.execute(IS_BUSY) == "1")
    own.kill()
    with pytest.raises(asyncpg.PostgresConnectionError):
        await busy
    own.restart()


async def test_a_stop_does_not_wait_for_clients(own: PostgresServer) -> None:
    connection = await asyncpg.connect(own.url())
    logged = len(own.log)
    own.restart()
    connection.terminate()
    assert await fetch(own.url(), "SELECT 1") == 1
    assert "was not properly shut down" not in own.log[logged:]


def test_a_server_dies_with_the_tests_that_started_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen(
            [sys.executable, "-c", STARTS_AND_WAITS, folder],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as tests:
            assert tests.stdout is not None
            assert tests.stdout.readline() == b"ready\n"
            assert len(processes_of(folder)) >= 3  # those tests, the guardian and the server
            tests.send_signal(signal.SIGKILL)
        eventually(lambda: not processes_of(folder))


async def test_valkey_responds(valkey: ValkeyServer) -> None:
    async with Redis.from_url(valkey.url()) as client:
        assert await client.ping()


async def test_valkey_comes_back_empty_after_a_crash(tmp_path: Path) -> None:
    with running_valkey(tmp_path) as server:
        async with Redis.from_url(server.url()) as client:
            await client.set("key", "value")
        server.kill()
        server.restart()
        async with Redis.from_url(server.url()) as client:
            assert await client.get("key") is None


async def test_valkey_persists_when_it_is_configured_to(tmp_path: Path) -> None:
    with running_valkey(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with Redis.from_url(server.url()) as client:
            await client.set("key", "value")
        server.kill()
        server.restart()
        async with Redis.from_url(server.url()) as client:
            assert await client.get("key") == b"value"


async def fetch(url: str, sql: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def processes_of(folder: str) -> list[str]:
    """Return the command lines that name the folder. The guardian ends last."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text(errors="replace"))
        except OSError:  # it has just ended
            continue
    return [line for line in lines if folder in line]
