"""Three instances on one PostgreSQL survive kills and outages (F2, F5, F17, F21, F38)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.databases.postgres import PostgresServer, find_installs, running_postgres
from support.faults.disturbances import LEASE, SETTINGS, Disturbances, disturb
from support.ledgers import claims_log
from support.ledgers.history import APP
from support.servers.cluster import clustered

RUN_WITHIN = 5.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with running_postgres(find_installs()[-1]) as started:
        yield started


@pytest.mark.timeout(120)
async def test_no_fault_loses_an_event_or_applies_an_effect_twice(
    server: PostgresServer, tmp_path: Path
) -> None:  # F2, F17, F38
    with clustered(server, tmp_path, APP, SETTINGS) as cluster:
        claims_log.install(cluster)
        disturbances = Disturbances(cluster, LEASE)
        history = await disturb(cluster, disturbances.each(), disturbances, senders=30)
        assert len(history.acked) > 200
        history.check(cluster.query)
        history.check_order(cluster.query)
        claims_log.check(cluster, lease=LEASE)
        assert claims_log.check_lanes(cluster) > 40
        assert max(claims_log.lateness(cluster, disturbances.outages)) < RUN_WITHIN
        print(
            len(history.acked),
            disturbances.count,
            sorted(claims_log.lateness(cluster, disturbances.outages))[-5:],
            history.refused,
        )
