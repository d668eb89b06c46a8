"""An instance whose clock is an hour off does no harm: only the server's clock is used (F25)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers import claims_log
from support.ledgers.history import APP, History, Senders
from support.servers.cluster import clustered

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

LEASE = 3.0
SETTINGS = {
    "CLAIM_TIMEOUT": f"{LEASE:g}s",
    "RETRY_BASE_DELAY": "50ms",
    "RETRY_MAX_DELAY": "1s",
    "MAX_ATTEMPTS": "10",
}
TAKEOVERS = "SELECT event FROM claims_log WHERE run > ran AND was = 'processing'"
BY_OTHER_CLOCKS = """
SELECT id FROM events
WHERE greatest(created_at, updated_at, processed_at, last_seen_at) > now()
   OR least(created_at, updated_at, processed_at, last_seen_at) < now() - interval '10 minutes'
"""
HOLDERS = "SELECT count(DISTINCT holder) FROM claims_log WHERE holder IS NOT NULL"


def faked(offset: str) -> dict[str, str]:
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    assert libraries, "make chaos needs libfaketime: apt-get install faketime"
    return {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.parametrize("offset", ["+1h", "-1h"])
async def test_an_instance_one_hour_off_changes_nothing(
    postgres_of: Callable[[Install], PostgresServer], tmp_path: Path, offset: str
) -> None:
    server = postgres_of(find_installs()[-1])
    with clustered(server, tmp_path, APP, SETTINGS, count=2, first=faked(offset)) as cluster:
        claims_log.install(cluster)
        history = History()
        senders = Senders(cluster.ports, history, count=10, pause=0.1, patience=10)
        await asyncio.sleep(15)
        await senders.stop()
        await asyncio.to_thread(cluster.wait_until_idle)
        history.check(cluster.query)
        history.check_order(cluster.query)
        claims_log.check(cluster, lease=LEASE)
        assert len(history.acked) > 300
        assert cluster.query(HOLDERS) == [(2,)]
        assert cluster.query(TAKEOVERS) == [], "run again because of the clock"
        assert cluster.query(BY_OTHER_CLOCKS) == []
        assert max(claims_log.lateness(cluster, [])) < 2
        assert "clock" in cluster.instances[0].log
        instance = cluster.instances[0]
        instance.kill()  # its claims are taken over when their leases expire by the server's clock
        instance.restart()
