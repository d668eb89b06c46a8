"""Connections of slow peers are closed, and other peers do not notice (F39)."""

import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread

import pytest

from support.faults.disk import on_a_faulty_disk
from support.http.posting import posted
from support.http.problems import assert_problem
from support.http.wire import Disconnected, Response, Wire, exchange, request
from support.servers.server import API_TOKEN, FAST_MONITOR, Server, running
from support.time.polling import eventually

IMPATIENT = {
    **FAST_MONITOR,
    "ackbox.http.connection:REQUEST_SECONDS": 1.0,
    "ackbox.http.connection:READ_RESPONSE_SECONDS": 1.0,
    "ackbox.http.connection:KEEP_ALIVE_SECONDS": 1.0,
    "ackbox.http.connection:LINGER_SECONDS": 0.5,
}
OPERATOR = {"Authorization": f"Bearer {API_TOKEN}"}
HALF_SENT = {
    "nothing": b"",
    "half a request line": b"POST /web",
    "half the headers": b"POST /webhooks HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "half a body": request("POST", "/webhooks", b"{", {"Content-Length": "100"}),
    "half a batch": request("POST", "/webhooks/batch", b"{}\n", {"Content-Length": "100"}),
    "half a chunk": request("POST", "/webhooks", headers={"Transfer-Encoding": "chunked"})
    + b"64\r\n{",
    "half a body for FastAPI": request(
        "POST", "/api/backup", b"{", {"Content-Length": "100", **OPERATOR}
    ),
    "half a body that nobody reads": request("GET", "/health", b"{", {"Content-Length": "100"}),
    "half a body that was refused": request(
        "POST", "/webhooks", b"{", {"Content-Length": "9999999"}
    ),
}
GETS_408 = ["half a request line", "half the headers", "half a body", "half a batch",
            "half a chunk", "half a body for FastAPI"]  # fmt: skip


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"MAX_BATCH_LINES": "100000", "API_TOKEN": API_TOKEN}
    with running(tmp_path_factory.mktemp("impatient"), settings, {"set": IMPATIENT}) as server:
        yield server


def test_half_a_request_gets_408(impatient: Server) -> None:
    with ExitStack() as open_:
        wires = [
            open_.enter_context(Wire(impatient.port)).send(HALF_SENT[kind]) for kind in GETS_408
        ]
        for wire in wires:
            assert "too slowly" in assert_problem(wire.read(), 408, connection="close")
        assert all(wire.is_closed(within=8) for wire in wires)


def test_any_number_of_half_sent_requests_is_closed_in_time(impatient: Server) -> None:
    with ExitStack() as open_:
        wires = [open_.enter_context(Wire(impatient.port)) for _ in range(20 * len(HALF_SENT))]
        for number, wire in enumerate(wires):
            wire.send([*HALF_SENT.values()][number % len(HALF_SENT)])

        assert all(wire.is_closed(within=8) for wire in wires)
    assert impatient.post(posted()).status == 202
    eventually(lambda: impatient.metric("ackbox_buffer_bytes") == 0)


def test_an_idle_connection_is_closed_without_a_response(impatient: Server) -> None:
    with Wire(impatient.port) as wire:
        assert wire.send(request()).read().status == 200
        with pytest.raises(Disconnected):
            wire.read()


def test_a_trickle_of_bytes_does_not_extend_the_deadline(impatient: Server) -> None:
    with (
        Wire(impatient.port) as headers,
        Wire(impatient.port) as body,
        Wire(impatient.port) as over,
    ):
        headers.send(HALF_SENT["half the headers"])
        body.send(HALF_SENT["half a body"])
        over.send(HALF_SENT["half a body that was refused"])

        assert trickle_until_closed([headers, body, over], every=0.1, within=8)


def test_early_bytes_do_not_extend_the_deadline_in_advance(impatient: Server) -> None:  # S3
    """With credit in advance, the 15 MB would allow a pause of four minutes."""
    for path, size in (("/webhooks", 1_000_000), ("/webhooks/batch", 15_000_000)):
        with Wire(impatient.port) as wire:
            wire.send(request("POST", path, b"x" * size)[:-1])
            assert "too slowly" in assert_problem(wire.read(), 408, connection="close")
            assert wire.is_closed(within=8)


def test_a_slow_body_that_keeps_arriving_is_accepted(tmp_path: Path) -> None:
    """Each 64 KiB extends the deadline by a second. The body takes longer than one deadline."""
    body = posted(payload="x" * 300_000)
    with running(tmp_path, None, {"set": IMPATIENT}) as server, Wire(server.port) as wire:
        wire.send(request("POST", "/webhooks", headers={"Content-Length": str(len(body))}))
        for start in range(0, len(body), 30_000):
            wire.send(body[start : start + 30_000])
            time.sleep(0.22)  # the slowness under test
        assert wire.read().status == 202


def test_a_client_that_reads_no_responses_is_disconnected(impatient: Server) -> None:
    """Otherwise its responses would fill the server's memory and keep its connection for ever."""
    lines = (posted("not taken", "x" * 100) + b"\n") * 20_000
    with Wire(impatient.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send_ignoring_close(request("POST", "/webhooks/batch", lines))
        eventually(lambda: impatient.metric("ackbox_buffer_bytes") > 0)
        eventually(lambda: impatient.metric("ackbox_buffer_bytes") == 0)
    assert impatient.get("/health").status == 200


def test_a_pipelined_request_does_not_time_out_while_the_server_is_late(tmp_path: Path) -> None:
    """Its body has arrived, but the server reads it only after the first response."""
    second = request("POST", "/webhooks", posted())
    with on_a_faulty_disk(tmp_path, None, IMPATIENT) as (server, disk), Wire(server.port) as wire:
        with disk.broken("stall"):
            wire.send(request("POST", "/webhooks", posted()))
            eventually(lambda: server.metric("ackbox_buffer_events") == 1)
            for part in (second[:-10], second[-10:]):
                wire.send(part)
                assert server.get("/health").status == 200  # it has seen the part by now
            with Wire(server.port) as later:  # it times out after the pipelined request would
                assert later.send(HALF_SENT["half a request line"]).read().status == 408
        assert [wire.read().status, wire.read().status] == [202, 202]


@pytest.mark.serial
def test_1000_slow_connections_are_closed_in_15_seconds_and_delay_no_sender(tmp_path: Path) -> None:
    allow_many_files()
    with running(tmp_path, {"LOG_LEVEL": "WARNING"}) as server, ExitStack() as open_:
        stop, waits = Event(), list[float]()
        healthy = Thread(target=keep_posting, args=(server, stop, waits))
        healthy.start()
        try:
            ages = ages_at_close(server, 1000, open_)
        finally:
            stop.set()
            healthy.join()

    assert len(ages) == 1000
    assert max(ages) <= 15
    assert len(waits) > 100
    assert quantiles(waits, n=100)[98] < 1


OCCUPATIONS: dict[str, Callable[[Wire], object]] = {
    "send nothing": lambda wire: None,
    "sent one request": lambda wire: wire.send(request()).read(),
    "sent half the headers": lambda wire: wire.send(b"POST /webhooks HTTP/1.1\r\n"),
    "sent half a body": lambda wire: wire.send(HALF_SENT["half a body"]),
}


@pytest.mark.parametrize("occupation", OCCUPATIONS)
def test_when_files_run_out_the_longest_waiting_are_closed(tmp_path: Path, occupation: str) -> None:
    occupy = OCCUPATIONS[occupation]
    with running(tmp_path, None, {"open_files": 300}) as server, ExitStack() as open_:
        for number in range(400):
            occupy(open_.enter_context(Wire(server.port)))
            if number % 50 == 0:
                assert server.post(posted()).status == 202
        for _ in range(20):
            assert server.post(posted()).status == 202
        assert server.get("/metrics").status == 200
        assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) < 300


def test_a_burst_past_the_limit_of_files_is_survived(tmp_path: Path) -> None:
    with running(tmp_path, None, {"open_files": 300}) as server, ExitStack() as open_:
        server.process.send_signal(19)  # SIGSTOP: the server then finds all of them at once
        for _ in range(600):
            wire = socket.socket()
            open_.callback(wire.close)
            wire.setblocking(False)
            wire.connect_ex(("127.0.0.1", server.port))
        server.process.send_signal(18)  # SIGCONT

        eventually(lambda: is_alive(server), within=5)
        assert {server.post(posted()).status for _ in range(20)} == {202}


def is_alive(server: Server) -> bool:
    try:
        return exchange(server.port, request()).status == 200
    except (Disconnected, OSError):
        return False


def trickle_until_closed(wires: list[Wire], *, every: float, within: float) -> bool:
    """Send a byte on each every so often; return whether all are closed in time."""
    born = {wire.socket: time.monotonic() for wire in wires}
    end = time.monotonic() + within
    while born and time.monotonic() < end:
        feed(born)
        for connection in ended(born, within=every):
            del born[connection]
    return not born


def ages_at_close(server: Server, count: int, open_: ExitStack) -> list[float]:
    """Open `count` slow connections of every kind and send a byte on each every second. Return the
    age of each when the server closed it."""
    born: dict[socket.socket, float] = {}
    for number in range(count):
        wire = open_.enter_context(Wire(server.port))
        wire.send([*HALF_SENT.values()][number % len(HALF_SENT)])
        born[wire.socket] = time.monotonic()
    ages: list[float] = []
    deadline = time.monotonic() + 20
    while born and time.monotonic() < deadline:
        feed(born)
        ages += [time.monotonic() - born.pop(ending) for ending in ended(born, within=1)]
    return ages


def feed(born: dict[socket.socket, float]) -> None:
    for connection in born:
        if is_open(connection):
            connection.send(b"x")


def is_open(connection: socket.socket) -> bool:
    """Return whether the server has neither responded nor closed. Writing after that could cause a
    reset, which would hide how the connection ended."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    return not poll.poll(0)


def ended(born: dict[socket.socket, float], *, within: float) -> list[socket.socket]:
    """Wait for the first connection that the server has closed; return all of them."""
    poll = select.poll()
    by_number = {connection.fileno(): connection for connection in born}
    for connection in born:
        poll.register(connection, select.POLLIN | select.POLLRDHUP)
    readable = [by_number[number] for number, _ in poll.poll(within * 1000)]
    return [connection for connection in readable if is_over(connection)]


def is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(65536) == b""
    except ConnectionError:
        return True


def keep_posting(server: Server, stop: Event, waits: list[float]) -> None:
    while not stop.wait(0.02):
        start = time.monotonic()
        response: Response = server.post(posted())
        waits.append(time.monotonic() - start)
        assert response.status == 202


def allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
