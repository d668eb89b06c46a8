"""Two ledgers in two schemas of one database, with live traffic on both."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.history import APP, SETTINGS, History, Senders
from support.servers.cluster import Cluster, Instance
from support.time.polling import until

Database = tuple[PostgresServer, str]

NAMES = ("orders", "billing")


@pytest.fixture
def database(
    postgres_of: Callable[[Install], PostgresServer],
) -> Iterator[tuple[PostgresServer, str]]:
    server = postgres_of(find_installs()[-1])
    url = server.create_database()
    for name in NAMES:
        server.execute(f"CREATE SCHEMA {name}_app", url.rpartition("/")[2])
    yield server, url
    server.recycle_database(url)


@contextmanager
def serving(server: PostgresServer, url: str, name: str, folder: Path) -> Iterator[Cluster]:
    """Start one instance. Its own tables and its users' tables are in two schemas of its own."""
    used = f"{url}?search_path={name}_app"
    instance = Instance(folder / name, APP, used, SETTINGS | {"DATABASE_SCHEMA": name})
    cluster = Cluster(server, url.rpartition("/")[2], [instance], f"{name}_app,{name}")
    try:
        instance.wait_until_ready(within=60)
        yield cluster
        cluster.assert_alive()
    finally:
        instance.kill()


@pytest.mark.timeout(120)
async def test_nothing_crosses_between_two_ledgers_under_traffic(
    database: Database, tmp_path: Path
) -> None:
    """Both ledgers get the same keys: each has its own events, lanes, counts and effects."""
    with ExitStack() as stack:
        served = [stack.enter_context(serving(*database, name, tmp_path)) for name in NAMES]
        histories = [History(seed=number) for number in range(len(served))]
        senders = [
            Senders(cluster.ports, history, count=5, pause=0.02, patience=5)
            for cluster, history in zip(served, histories, strict=True)
        ]
        await until(lambda: min(len(history.acked) for history in histories) >= 60, within=60)
        for each in senders:
            await asyncio.wait_for(each.stop(), 30)
        for cluster, history in zip(served, histories, strict=True):
            await asyncio.to_thread(cluster.wait_until_idle, within=60)
            history.check(cluster.query)
            history.check_order(cluster.query)
            assert len(cluster.query("SELECT 1 FROM events")) == len(history.acked)
