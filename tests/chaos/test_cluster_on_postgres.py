"""Three instances on one PostgreSQL through a hundred faults, under load (F2, F17, F21, F38)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs, running_postgres
from support.faults.disturbances import LEASE, SETTINGS, Disturbances, disturb
from support.faults.tcp_proxy import proxied
from support.http.posting import posted
from support.ledgers import claims_log
from support.ledgers.history import APP
from support.servers.cluster import clustered
from support.time.polling import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

ROUNDS = 100
RUN_WITHIN = 5.0


@pytest.fixture(params=[find_installs()[0], find_installs()[-1]], ids=str)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    install: Install = request.param
    with running_postgres(install) as started:
        yield started


async def test_a_hundred_faults_lose_no_event_and_apply_no_effect_twice(
    server: PostgresServer, tmp_path: Path
) -> None:
    with clustered(server, tmp_path, APP, SETTINGS) as cluster:
        claims_log.install(cluster)
        disturbances = Disturbances(cluster, LEASE)
        rounds = [disturbances.any() for _ in range(ROUNDS)]
        history = await disturb(cluster, rounds, disturbances, senders=30)
        late = claims_log.lateness(cluster, disturbances.outages)
        print(
            f"{dict(disturbances.count)}, {len(history.acked)} acknowledged, {len(late)} claims, "
            f"the latest {max(late):.2f} s after its event was claimable"
        )
        history.check(cluster.query)
        history.check_order(cluster.query)
        claims_log.check(cluster, lease=LEASE)
        assert claims_log.check_lanes(cluster) > ROUNDS
        assert max(late) < RUN_WITHIN


def test_connections_that_hang_for_ever_are_given_up(
    server: PostgresServer, tmp_path: Path
) -> None:  # F20
    """A firewall may drop the state of connections: old ones are silent, new ones can be made."""
    with (
        proxied(server.port) as proxy,
        clustered(server, tmp_path, APP, SETTINGS, count=1, port=proxy.port) as cluster,
    ):
        (instance,) = cluster.instances
        for _ in range(3):
            proxy.strand()
            eventually(lambda: instance.post(posted(payload=PLAIN)).status == 202, within=40)
        cluster.wait_until_idle(within=40)


PLAIN = {"seconds": 0, "failures": 0, "dead": False}
