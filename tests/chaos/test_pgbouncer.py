"""Instances behind PgBouncer, the most common pooling proxy."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.databases.guarded import clean_environment, free_ports
from support.databases.guardian import identity
from support.databases.postgres import Install, PostgresServer, find_installs
from support.faults.disturbances import LEASE, SETTINGS
from support.http.wire import Wire
from support.ledgers import claims_log
from support.ledgers.history import APP, History, Senders
from support.servers.cluster import clustered
from support.time.polling import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
"""


@contextmanager
def bouncing(server: PostgresServer, mode: str) -> Iterator[int]:
    assert shutil.which("pgbouncer"), "make chaos needs pgbouncer: apt-get install pgbouncer"
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="ackbox-pgbouncer-") as folder:
        file = Path(folder) / "pgbouncer.ini"
        size = 5 if mode == "transaction" else 60
        text = CONFIGURATION.format(server=server.port, port=port, mode=mode, size=size)
        file.write_text(text)
        Path(folder).chmod(0o755)
        with subprocess.Popen(
            ["pgbouncer", str(file)],
            cwd=folder,
            env=clean_environment(),
            stderr=subprocess.DEVNULL,
            **identity(server.user),
        ) as running:
            try:
                eventually(lambda: accepts_connections(port))
                yield port
            finally:
                running.kill()


def accepts_connections(port: int) -> bool:
    try:
        Wire(port).socket.close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_three_instances_behind_pgbouncer_lose_nothing(
    postgres_of: Callable[[Install], PostgresServer], tmp_path: Path, mode: str
) -> None:
    server = postgres_of(find_installs()[-1])
    settings = {**SETTINGS, "DATABASE_POOLING": mode}
    with (
        bouncing(server, mode) as port,
        clustered(server, tmp_path, APP, settings, port=port) as cluster,
    ):
        claims_log.install(cluster)
        history = History()
        senders = Senders(cluster.ports, history, count=20, pause=0.1, patience=3)
        for instance in cluster.instances:
            await asyncio.sleep(2)
            await asyncio.to_thread(instance.kill)
            await asyncio.to_thread(instance.restart)
        await asyncio.wait_for(senders.stop(), 30)
        await asyncio.to_thread(cluster.wait_until_idle)
        history.check(cluster.query)
        history.check_order(cluster.query)
        claims_log.check(cluster, lease=LEASE)
        assert claims_log.check_lanes(cluster) > 40
        assert len(history.acked) > 200
