"""Start and stop of the server process, by signals and by kills (W5, F2, F26)."""

import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event, Thread

import apsw
import pytest

from ackbox.ports import Store
from support.faults.disk import on_a_faulty_disk
from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Disconnected, Wire, exchange, request
from support.ledgers.events import envelopes, record_in
from support.ledgers.seeding import seed
from support.servers.server import API_TOKEN, FAST_MONITOR, Server, read_ledger, running
from support.time.polling import eventually


def test_before_the_ledger_is_open_senders_get_503(tmp_path: Path) -> None:  # W13
    go = tmp_path / "go"
    settings = {"PORT": str(free_port()), "API_TOKEN": API_TOKEN}
    server = Server(tmp_path / "server", settings, {"starts_with": str(go)})
    server.port = int(server.environment["PORT"])
    try:
        assert eventually(lambda: try_get(server, "/health")) == 200
        for response in (server.get("/ready"), server.post(posted())):
            assert "starting" in assert_problem(response, 503, **{"retry-after": "1"})
        assert_problem(server.get("/webhooks?idempotency_key=a"), 503)
        assert server.get("/metrics").status == 200

        go.touch()
        eventually(server.is_ready)
        assert server.post(posted()).status == 202
    finally:
        server.kill()


def test_acknowledged_events_survive_a_kill_at_any_time(tmp_path: Path) -> None:  # F2
    acked: list[str] = []
    with running(tmp_path, {"LOG_LEVEL": "WARNING"}) as server:
        for kill_after in (20, 150, 300):
            with senders(server, acked, count=8):
                goal = len(acked) + kill_after
                eventually(partial(has_grown, acked, goal))
                server.kill()
            server.restart()
            stored = {row[0] for row in read_ledger(server.ledger, "SELECT id FROM events")}
            assert set(acked) <= stored
        assert server.stop() == 0

    rows = read_ledger(
        server.ledger, "SELECT count(*), count(DISTINCT idempotency_key) FROM events"
    )
    assert rows[0][0] == rows[0][1] >= len(acked)
    assert read_ledger(server.ledger, "PRAGMA quick_check") == [("ok",)]


def test_a_duplicate_gets_the_current_status_of_the_event(tmp_path: Path) -> None:  # W8
    with running(tmp_path) as server:
        first = server.post(posted("k"))
        assert server.stop() == 0
        write(server.ledger, "UPDATE events SET status = 'completed'")
        server.restart()

        again = server.post(posted("k"))

        assert again.status == 200
        assert again.json() == {**first.json(), "status": "completed"}
        assert server.get("/webhooks?idempotency_key=k").json()["status"] == "completed"


def test_during_the_drain_accepted_events_get_their_response_and_new_ones_get_503(
    tmp_path: Path,
) -> None:  # W5, F26
    with on_a_faulty_disk(tmp_path) as (server, disk), ExitStack() as open_:
        waiting = [open_.enter_context(Wire(server.port)) for _ in range(5)]
        with disk.broken("stall"):
            for wire in waiting:
                wire.send(request("POST", "/webhooks", posted()))
            eventually(lambda: server.metric("ackbox_buffer_events") == 5)
            server.process.send_signal(signal.SIGTERM)

            eventually(lambda: server.get("/ready").status == 503)
            response = server.post(posted())
            assert "draining" in assert_problem(response, 503, **{"retry-after": "1"})
            assert server.get("/health").status == 200

        ids = [wire.read().json()["id"] for wire in waiting]
        assert server.process.wait(15) == 0
    assert {row[0] for row in read_ledger(server.ledger, "SELECT id FROM events")} == set(ids)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_nothing_and_exits_0(tmp_path: Path, stop: int) -> None:  # W5
    acked: list[str] = []
    with running(tmp_path) as server, senders(server, acked, count=8):
        eventually(partial(has_grown, acked, 100))
        server.process.send_signal(stop)
        assert server.process.wait(15) == 0

    assert not (tmp_path / "events.db-wal").exists()
    stored = {row[0] for row in read_ledger(server.ledger, "SELECT id FROM events")}
    assert set(acked) <= stored


def test_slow_peers_do_not_delay_the_stop(tmp_path: Path) -> None:  # F26, F39
    with running(tmp_path) as server, ExitStack() as open_:
        peers = [open_.enter_context(Wire(server.port)) for _ in range(6)]
        peers[1].send(request()).read()
        peers[2].send(b"POST /webhooks HTTP/1.1\r\nHost: ")
        peers[3].send(request("POST", "/webhooks", b"{", {"Content-Length": "100"}))
        headers = {"Content-Length": "100", **server.operator}
        peers[4].send(request("POST", "/api/backup", b"{", headers))
        peers[5].send(request() + b"POST /web")
        assert peers[5].read().status == 200
        started = time.monotonic()

        assert server.stop() == 0

        assert time.monotonic() - started < 4
        assert_problem(peers[3].read(), 503, **{"retry-after": "1", "connection": "close"})
        assert all(peer.is_closed() for peer in peers)


def test_a_peer_that_reads_no_responses_does_not_prevent_the_stop(tmp_path: Path) -> None:
    changes = {"set": {**FAST_MONITOR, "ackbox.http.server:Server": {"abort_seconds": 1}}}
    lines = (posted("not taken", "x" * 100) + b"\n") * 20_000
    with running(tmp_path, None, changes) as server, Wire(server.port) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.send_ignoring_close(request("POST", "/webhooks/batch", lines))
        eventually(lambda: server.metric("ackbox_buffer_bytes") > 0)

        assert server.stop() == 0
        assert not any(record["level"] == "error" for record in server.records())


def test_a_second_server_on_the_same_ledger_is_refused_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        second = serve_again(server)

        assert second.returncode != 0
        assert second.stdout == b""
        (line,) = second.stderr.decode().splitlines()
        assert f"process {server.pid}" in line
        assert f"127.0.0.1:{server.port}" in line
        assert server.post(posted()).status == 202


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path / "first") as server:
        second = serve_again(server, PORT=str(server.port), DB_PATH=str(tmp_path / "other.db"))

        assert second.returncode != 0
        (line,) = second.stderr.decode().splitlines()
        assert str(server.port) in line
        assert "in use" in line


def serve_again(server: Server, **settings: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "ackbox", "serve"],
        env={**server.environment, **settings},
        cwd=server.folder,
        capture_output=True,
        timeout=30,
        check=False,
    )


class senders:  # noqa: N801 - reads as the block it opens
    """`count` clients that post without a pause and record the acknowledged ids."""

    def __init__(self, server: Server, acked: list[str], *, count: int) -> None:
        self._port = server.port
        self._acked = acked
        self._stop = Event()
        self._threads = [Thread(target=self._send) for _ in range(count)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        try:
            with Wire(self._port) as wire:
                while not self._stop.is_set():
                    response = wire.send(request("POST", "/webhooks", posted(new_key()))).read()
                    assert response.status in (202, 503)
                    if response.status == 202:
                        self._acked.append(response.json()["id"])
        except (Disconnected, OSError):
            return


def has_grown(acked: list[str], goal: int) -> bool:
    return len(acked) >= goal


def try_get(server: Server, path: str) -> int:
    try:
        return exchange(server.port, request("GET", path)).status
    except (Disconnected, OSError):
        return 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def write(ledger: Path, sql: str) -> None:
    """Write to the ledger while no server has it open."""
    connection = apsw.Connection(str(ledger))
    connection.execute(sql)
    connection.close()


# N23
@pytest.mark.parametrize(
    ("settings", "low", "reason"),
    [
        ({}, 1 << 60, "The disk is nearly full"),
        ({"QUEUE_MAXSIZE": "2"}, None, "3 events wait, and QUEUE_MAXSIZE is 2."),
    ],
)
def test_a_start_that_refuses_events_is_not_logged_as_ready(
    tmp_path: Path, settings: dict[str, str], low: int | None, reason: str
) -> None:
    async def fill(store: Store) -> None:
        await record_in(store, envelopes(3))

    seed(tmp_path / "events.db", fill)
    changes = {"set": {} if low is None else {"ackbox.stores.sqlite.write.reserve:LOW_BYTES": low}}
    server = Server(tmp_path, settings, changes)
    try:
        eventually(lambda: "listening" in server.log)
        records = {line["event"]: line for line in server.records()}
        assert "ready" not in records
        assert reason in records["started, new events are refused"]["reason"]
        assert records["started, new events are refused"]["pending"] == 3
    finally:
        server.kill()
