"""25 SIGKILLs on each database, and a transaction of a user that stays open for a minute."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.faults.follow_ups import (
    APP,
    SETTINGS,
    check_follow_ups,
    kill_in_turn,
    wait_until_settled,
)
from support.ledgers.history import History, Senders
from support.servers.app_server import serving
from support.servers.cluster import Cluster, clustered
from support.time.polling import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

KILLS = 25
OPEN_SECONDS = 60.0


@pytest.fixture
def cluster(postgres_of: Callable[[Install], PostgresServer], tmp_path: Path) -> Iterator[Cluster]:
    server = postgres_of(find_installs()[-1])
    with clustered(server, tmp_path, APP, SETTINGS, count=2) as started:
        yield started


async def test_25_kills_on_sqlite_neither_lose_nor_double_a_follow_up(tmp_path: Path) -> None:
    with serving(tmp_path, APP, SETTINGS) as server:
        history = await kill_in_turn([server], KILLS, server.query)
        assert len(history.acked) > 10 * KILLS
        check_follow_ups(history, server.query)
        print(f"{len(history.acked)} events acknowledged, {KILLS} kills")


async def test_25_kills_on_postgresql_neither_lose_nor_double_a_follow_up(
    cluster: Cluster,
) -> None:
    history = await kill_in_turn(cluster.instances, KILLS, cluster.query)
    assert len(history.acked) > 10 * KILLS
    check_follow_ups(history, cluster.query)
    print(f"{len(history.acked)} events acknowledged, {KILLS} kills")


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started >= seconds


async def test_a_transaction_that_is_open_for_a_minute_blocks_nobody(cluster: Cluster) -> None:
    url = cluster.server.url(cluster.name)
    history = History()
    connection = await asyncpg.connect(url)
    await connection.execute("BEGIN; SELECT ackbox.enqueue('step', '{\"parent\": \"open\"}')")
    with lasting(OPEN_SECONDS):
        senders = Senders(cluster.ports, history, count=5, pause=0.1, patience=5)
        await asyncio.sleep(OPEN_SECONDS)
        await senders.stop()
        await wait_until_settled(cluster.query, within=30)
    check_follow_ups(history, cluster.query)
    waited = sorted(history.acked_at[key] - history.sent_at[key] for key in history.acked)
    print(f"{len(waited)} events acknowledged, the slowest after {waited[-1]:.2f} s")
    assert waited[-1] < 5
    await connection.execute("COMMIT")
    await connection.close()
    received = "SELECT count(*) FROM received WHERE parent = 'open'"
    await asyncio.to_thread(eventually, lambda: cluster.query(received) == [(1,)], every=0.3)
