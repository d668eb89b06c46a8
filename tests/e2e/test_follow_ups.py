"""SIGKILL at any moment: every event that a handler sends arrives, once. `make chaos` kills more
often."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.faults.follow_ups import APP, SETTINGS, check_follow_ups, kill_in_turn
from support.servers.app_server import serving
from support.servers.cluster import clustered

KILLS = 3


@pytest.mark.timeout(120)
async def test_kills_on_sqlite_neither_lose_nor_double_a_follow_up(tmp_path: Path) -> None:
    with serving(tmp_path, APP, SETTINGS) as server:
        history = await kill_in_turn([server], KILLS, server.query)
        assert len(history.acked) > 20
        check_follow_ups(history, server.query)


@pytest.mark.timeout(120)
async def test_kills_on_postgresql_neither_lose_nor_double_a_follow_up(
    postgres_of: Callable[[Install], PostgresServer], tmp_path: Path
) -> None:
    server = postgres_of(find_installs()[-1])
    with clustered(server, tmp_path, APP, SETTINGS, count=2) as cluster:
        history = await kill_in_turn(cluster.instances, KILLS, cluster.query)
        assert len(history.acked) > 20
        check_follow_ups(history, cluster.query)
