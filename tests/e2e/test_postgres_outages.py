"""While PostgreSQL is unavailable, requests get 503; afterwards all recovers (F20, F38)."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs, running_postgres
from support.faults.tcp_proxy import TcpProxy, proxied
from support.http.posting import posted
from support.http.problems import assert_problem
from support.servers.cluster import Cluster, Instance, clustered
from support.time.polling import eventually

pytestmark = pytest.mark.timeout(120)

QUICK = """
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    pass
"""
NOTES = """
import asyncio, os, time
from ackbox import Inbox

inbox = Inbox()

def note(what, event):
    with open("runs", "a") as file:
        print(what, event.run, time.time(), file=file)

@inbox.on("*")
async def handle(event):
    note("began", event)
    try:
        await asyncio.sleep(event.json() if event.run == 1 else 0)
    except asyncio.CancelledError:
        note("cancelled", event)
        raise
    note("ended", event)
"""
RESPONSE_WITHIN = 5.0 + 1.0  # INGEST_TIMEOUT, and the interval at which deadlines are checked
NOTICED_WITHIN = 15.0 + 1.0
"""A statement on a connection that hangs times out, and the database is checked every second. A new
connection times out earlier, but there may be idle connections enough."""
IDLE = {"WORKER_COUNT": "0"}


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with running_postgres(find_installs()[-1]) as started:
        yield started


@pytest.fixture
def shared_server(postgres_of: Callable[[Install], PostgresServer]) -> PostgresServer:
    return postgres_of(find_installs()[-1])


@pytest.fixture
def proxy(shared_server: PostgresServer) -> Iterator[TcpProxy]:
    with proxied(shared_server.port) as made:
        yield made


def test_a_stopped_server_is_a_503_and_all_recovers_by_itself(
    own_server: PostgresServer, tmp_path: Path
) -> None:  # F38
    with clustered(own_server, tmp_path, QUICK, count=2, first=IDLE) as cluster:
        keys = [send(instance) for instance in cluster.instances]
        own_server.stop()
        for instance in cluster.instances:
            eventually(refusing(instance))
            refused = instance.post(posted())
            assert_problem(refused, 503, **{"retry-after": refused.headers["retry-after"]})
            assert int(refused.headers["retry-after"]) >= 1
            assert instance.get("/health").status == 200
        own_server.start()
        for instance in cluster.instances:
            eventually(instance.is_ready, within=10)
            keys.append(send(instance))
        assert_all_done(cluster, keys)
        assert_wakes(cluster)


def test_terminated_back_ends_lose_nothing_and_listening_goes_on(
    shared_server: PostgresServer, tmp_path: Path
) -> None:  # F38
    with clustered(shared_server, tmp_path, QUICK, count=2, first=IDLE) as cluster:
        keys: list[str] = []
        for _ in range(3):
            cluster.terminate_backends()
            keys += [eventually(sending(instance), within=10) for instance in cluster.instances]
        assert_all_done(cluster, keys)
        assert_wakes(cluster)


def test_a_frozen_holder_finishes_after_the_takeover_and_changes_nothing(
    shared_server: PostgresServer, tmp_path: Path
) -> None:  # F17
    with clustered(shared_server, tmp_path, NOTES, {"CLAIM_TIMEOUT": "1s"}, count=2) as cluster:
        assert cluster.instances[0].post(posted(payload=2)).status == 202
        (holder,) = eventually(lambda: running_at(cluster))
        holder.pause()
        cluster.wait_until_idle(within=6)
        settled = cluster.query("SELECT run, status, attempts, processed_at FROM events")
        assert settled[0][:3] == (2, "completed", 1)  # the attempt of the lost run was refunded
        holder.resume()
        eventually(lambda: ended_or_cancelled(holder), within=5)
        assert cluster.query("SELECT run, status, attempts, processed_at FROM events") == settled


@pytest.mark.parametrize("fault", ["cut", "hang"])
def test_a_handler_is_stopped_before_its_lease_ends_without_the_database(
    shared_server: PostgresServer, proxy: TcpProxy, tmp_path: Path, fault: str
) -> None:  # F20
    lease = {"CLAIM_TIMEOUT": "2s"}
    with clustered(shared_server, tmp_path, NOTES, lease, count=1, port=proxy.port) as cluster:
        (instance,) = cluster.instances
        assert instance.post(posted(payload=30)).status == 202
        first = eventually(lambda: leases(cluster))
        eventually(lambda: leases(cluster) != first)  # it was renewed
        getattr(proxy, fault)()
        eventually(lambda: noted(instance, "cancelled"), within=4)
        (until,) = leases(cluster)
        assert noted(instance, "cancelled")[0] < until
        proxy.heal()
        cluster.wait_until_idle(within=15)
        assert cluster.query("SELECT run, status FROM events") == [(2, "completed")]


def test_a_database_that_hangs_is_a_503_in_time_and_the_instance_recovers(
    shared_server: PostgresServer, proxy: TcpProxy, tmp_path: Path
) -> None:  # F20
    with clustered(shared_server, tmp_path, QUICK, count=1, port=proxy.port) as cluster:
        (instance,) = cluster.instances
        keys = [send(instance)]
        proxy.hang()
        started = time.monotonic()
        assert_problem(instance.post(posted()), 503, **{"retry-after": "5"})
        assert time.monotonic() - started < RESPONSE_WITHIN
        assert instance.get("/health").status == 200
        eventually(lambda: instance.get("/ready").status == 503, within=NOTICED_WITHIN)
        proxy.heal()
        keys.append(eventually(sending(instance), within=25))
        eventually(instance.is_ready, within=10)
        assert_all_done(cluster, keys)


def test_a_database_that_is_unavailable_during_a_start_does_not_end_it(
    shared_server: PostgresServer, proxy: TcpProxy, tmp_path: Path
) -> None:  # F38
    url = shared_server.create_database().replace(f":{shared_server.port}/", f":{proxy.port}/")
    proxy.cut()
    instance = Instance(tmp_path, QUICK, url, {})
    try:
        eventually(refusing(instance))
        assert instance.get("/health").status == 200
        assert_problem(instance.post(posted()), 503, **{"retry-after": "1"})
        for _ in range(3):
            proxy.heal()
            proxy.cut()
        proxy.heal()
        eventually(instance.is_ready, within=15)
        send(instance)
    finally:
        instance.kill()


def test_a_database_that_is_lost_in_the_middle_of_a_start_does_not_end_it(
    shared_server: PostgresServer, proxy: TcpProxy, tmp_path: Path
) -> None:  # F38
    url = shared_server.create_database().replace(f":{shared_server.port}/", f":{proxy.port}/")
    proxy.allow(1)
    instance = Instance(tmp_path, QUICK, url, {})
    try:
        eventually(refusing(instance))
        eventually(lambda: proxy.refused >= 3)  # the start keeps retrying
        assert instance.process.poll() is None, instance.log
        proxy.heal()
        eventually(instance.is_ready, within=15)
        send(instance)
    finally:
        instance.kill()


def send(instance: Instance) -> str:
    body = posted()
    assert instance.post(body).status == 202
    return str(instance.post(body).json()["id"])


def sending(instance: Instance) -> Callable[[], str]:
    def try_to_send() -> str:
        assert instance.process.poll() is None, instance.log
        response = instance.post(posted())
        return str(response.json()["id"]) if response.status == 202 else ""

    return try_to_send


def refusing(instance: Instance) -> Callable[[], bool]:
    def is_refusing() -> bool:
        response = instance.try_get("/ready")
        return response is not None and response.status == 503

    return is_refusing


def assert_all_done(cluster: Cluster, ids: list[str]) -> None:
    cluster.wait_until_idle()
    done = {row[0] for row in cluster.query("SELECT id FROM events WHERE status = 'completed'")}
    assert set(ids) <= done


def assert_wakes(cluster: Cluster) -> None:
    """Check that one instance wakes for events of the other, which has no workers, sooner than it
    would by its own polling."""
    eventually(lambda: median(waits(cluster, 5)) < 0.5, within=15)


def waits(cluster: Cluster, events: int) -> list[float]:
    """Send events one by one, each when the workers have just begun to wait. Return the delays."""
    for _ in range(events):
        send(cluster.instances[0])
        cluster.wait_until_idle()
    newest = "SELECT processed_at, created_at FROM events ORDER BY ledger_id DESC"
    took = f"SELECT extract(epoch FROM processed_at - created_at) FROM ({newest} LIMIT {events}) x"
    return [seconds for (seconds,) in cluster.query(took)]


def leases(cluster: Cluster) -> list[float]:
    until = "SELECT extract(epoch FROM lease_until) FROM events WHERE lease_until IS NOT NULL"
    return [seconds for (seconds,) in cluster.query(until)]


def running_at(cluster: Cluster) -> list[Instance]:
    return [instance for instance in cluster.instances if noted(instance, "began")]


def ended_or_cancelled(instance: Instance) -> bool:
    return bool(noted(instance, "ended") or noted(instance, "cancelled"))


def noted(instance: Instance, what: str) -> list[float]:
    file = instance.folder / "runs"
    lines = file.read_text().splitlines() if file.exists() else []
    return [float(line.split()[2]) for line in lines if line.split()[0] == what]
