"""Many instances that start on an empty database at once: one schema, all of them ready."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.http.posting import posted
from support.servers.cluster import clustered

APP = """
from ackbox import Inbox

inbox = Inbox()
inbox.schema("CREATE TABLE IF NOT EXISTS seen (event_id TEXT PRIMARY KEY)")

@inbox.on("*")
async def handle(event, tx):
    tx.execute("INSERT INTO seen VALUES (:id)", id=event.id)
"""


@pytest.mark.timeout(180)
def test_ten_instances_started_at_once_make_one_schema(
    postgres_of: Callable[[Install], PostgresServer], tmp_path: Path
) -> None:
    server = postgres_of(find_installs()[-1])
    with clustered(server, tmp_path, APP, {"WORKER_COUNT": "1"}, count=10) as cluster:
        migrated = cluster.query("SELECT version, count(*) FROM schema_migrations GROUP BY 1")
        assert migrated
        assert {count for _, count in migrated} == {1}
        for instance in cluster.instances:
            assert instance.post(posted()).status == 202
        cluster.wait_until_idle()
        assert cluster.query("SELECT count(*) FROM seen") == [(10,)]
