"""How a connection ends: with a response that the peer can read, and never with silence (F57)."""

import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Disconnected, Response, Wire, request
from support.servers.server import FAST_MONITOR, Server, running
from support.time.polling import eventually

TOKEN = "a-token-of-senders"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
LARGE = b"x" * 5_000_000
CLOSE = [b"Connection: close", b"Proxy-Connection: close", b"connection: foo, Close"]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that requires a token from senders."""
    folder = tmp_path_factory.mktemp("closed")
    with running(folder, {"INGEST_TOKEN": TOKEN}, {"set": FAST_MONITOR}) as server:
        yield server


def with_trailer(trailer: bytes, headers: dict[str, str]) -> bytes:
    body = posted()
    head = request("POST", "/webhooks", headers={"Transfer-Encoding": "chunked", **headers})
    return head + b"%x\r\n%s\r\n0\r\n%s\r\n\r\n" % (len(body), body, trailer)


@pytest.mark.parametrize("trailer", CLOSE)
@pytest.mark.parametrize("status", [202, 401])
def test_a_trailer_connection_close_ends_the_connection(  # C1, F57
    closed: Server, trailer: bytes, status: int
) -> None:
    data = with_trailer(trailer, GOOD if status == 202 else {})
    with Wire(closed.port, timeout=5) as wire:
        assert wire.send(data).read().status == status
        wire.send_ignoring_close(request())
        with pytest.raises(Disconnected):
            wire.read()


@pytest.mark.parametrize("trailer", CLOSE)
def test_a_response_says_that_a_trailer_ends_the_connection(  # C1
    closed: Server, trailer: bytes
) -> None:
    with Wire(closed.port, timeout=5) as wire:
        wire.send(with_trailer(trailer, GOOD) + request())
        assert wire.read().headers["connection"] == "close"
        with pytest.raises(Disconnected):
            wire.read()


def test_a_closing_trailer_after_the_response_ends_the_connection_too(  # C1, F57
    closed: Server,
) -> None:
    head, _, rest = with_trailer(b"Connection: close", {}).partition(b"\r\n\r\n")
    with Wire(closed.port, timeout=5) as wire:
        assert wire.send(head + b"\r\n\r\n").read().status == 401
        wire.send_ignoring_close(rest + request())
        with pytest.raises(Disconnected):
            wire.read()


def test_another_trailer_does_not_end_the_connection(closed: Server) -> None:  # C1
    with Wire(closed.port) as wire:
        for trailer in (b"Connection: keep-alive", b"X-Connection: close", b"Upgrade: h2c"):
            assert wire.send(with_trailer(trailer, GOOD)).read().status == 202


Client = Callable[[Server, bytes, dict[str, str]], int]


def urllib_post(server: Server, body: bytes, headers: dict[str, str]) -> int:
    """Post with urllib's defaults: `Connection: close`, and no read before everything is sent."""
    url = f"http://127.0.0.1:{server.port}/webhooks"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers), timeout=10
        ) as response:
            status: int = response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return status


def http_client_post(server: Server, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("POST", "/webhooks", body, {**headers, "Connection": "close"})
        return connection.getresponse().status
    finally:
        connection.close()


def http_1_0_post(server: Server, body: bytes, headers: dict[str, str]) -> int:
    data = request("POST", "/webhooks", body, headers).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    with Wire(server.port) as wire:
        response = wire.send(data).read()
        assert response.headers["connection"] == "close"
        return response.status


@pytest.mark.parametrize("post", [urllib_post, http_client_post, http_1_0_post])
@pytest.mark.parametrize("status", [401, 413])
def test_a_client_always_reads_an_early_refusal_of_a_large_body(  # C2
    closed: Server, post: Client, status: int
) -> None:
    headers = GOOD if status == 413 else {}
    assert [post(closed, LARGE, headers) for _ in range(10)] == [status] * 10


def test_an_endless_body_is_not_discarded_for_ever(closed: Server) -> None:  # C2
    head = request(
        "POST", "/webhooks", headers={"Content-Length": str(10**10), "Connection": "close"}
    )
    with Wire(closed.port) as wire:
        assert wire.send(head).read().status == 401
        with pytest.raises(ConnectionError):
            wire.send(bytes(128 * 1024 * 1024))


def half_closed(server: Server, data: bytes) -> list[Response]:
    """Send the data, end the client's side at once, and return every response."""
    responses = []
    with Wire(server.port, timeout=5) as wire:
        wire.send(data).socket.shutdown(socket.SHUT_WR)
        try:
            while True:
                responses.append(wire.read())
        except Disconnected:
            return responses


def test_a_client_that_ends_its_side_after_its_request_gets_its_response(  # C4, F57
    closed: Server,
) -> None:
    for _ in range(40):
        (response,) = half_closed(closed, request("POST", "/webhooks", posted(), GOOD))
        assert response.status == 202


def test_a_half_closed_client_gets_every_response_on_every_route(closed: Server) -> None:  # C4
    keys = [new_key() for _ in range(20)]
    pipelined = b"".join(request("POST", "/webhooks", posted(key), GOOD) for key in keys)
    batch = b"\n".join(posted() for _ in range(2000))

    assert [a.status for a in half_closed(closed, request())] == [200]
    assert [a.json()["idempotency_key"] for a in half_closed(closed, pipelined)] == keys
    (response,) = half_closed(closed, request("POST", "/webhooks/batch", batch, GOOD))
    assert len(response.lines()) == 2000
    (refused,) = half_closed(closed, request("POST", "/webhooks", LARGE))
    assert_problem(refused, 401)


CUT_SHORT = {
    "nothing": b"",
    "half a request line": b"POST /web",
    "half the headers": request("POST", "/webhooks", headers=GOOD)[:-10],
    "half a body": request("POST", "/webhooks", posted(payload="x" * 300_000), GOOD)[:-10],
    "half a batch": request("POST", "/webhooks/batch", posted() * 9, GOOD)[:-10],
    "half a chunk": with_trailer(b"", GOOD)[:-20],
    "half a trailer": with_trailer(b"X: a", GOOD)[:-3],
    "half a body that was refused": request("POST", "/webhooks", LARGE[:9999])[:-10],
    "half a body that nobody reads": request("GET", "/health", LARGE[:9999])[:-10],
}


@pytest.mark.parametrize("name", CUT_SHORT)
def test_a_client_that_ends_its_side_too_early_holds_nothing(  # C4, F55, F57
    closed: Server, name: str
) -> None:
    whole = request("POST", "/webhooks", posted(), GOOD)

    assert [a.status for a in half_closed(closed, whole + CUT_SHORT[name])][:1] == [202]
    for response in half_closed(closed, CUT_SHORT[name]):
        assert response.status in (200, 401)  # sent before the client ended its side
    eventually(lambda: closed.metric("ackbox_buffer_bytes") == 0)


EXPECT = {"Expect": "100-continue"}


def test_a_refusal_instead_of_100_continue_ends_the_connection(  # C6, S17, F57
    closed: Server,
) -> None:
    for headers, status in (({}, 401), ({"Content-Encoding": "gzip", **GOOD}, 415)):
        data = request("POST", "/webhooks", headers={"Content-Length": "9", **EXPECT, **headers})
        with Wire(closed.port) as wire:
            assert_problem(wire.send(data).read(), status, connection="close")
            wire.send_ignoring_close(posted()[:9] + request())
            with pytest.raises(Disconnected):
                wire.read()


def test_a_broken_chunk_before_100_continue_gets_the_refusal_alone(closed: Server) -> None:
    """The app starts on the request, and waits for its body, after the refusal has been sent."""
    headers = {"Transfer-Encoding": "chunked", **EXPECT, **GOOD}
    with Wire(closed.port) as wire:
        wire.send(request("POST", "/webhooks", headers=headers) + b"zz\r\n")
        assert wire.read_interim() == 400
        assert wire.is_closed()
    assert closed.post(posted(), GOOD).status == 202
    assert "Traceback" not in closed.log


def test_a_route_that_reads_no_body_ends_the_connection_instead_of_100(
    closed: Server,
) -> None:  # C6, S17
    with Wire(closed.port) as wire:
        response = wire.send(request("GET", headers={"Content-Length": "9", **EXPECT})).read()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert wire.is_closed()


def test_a_client_that_gets_100_continue_keeps_its_connection(closed: Server) -> None:
    body = posted()
    for expect in ("100-continue", "100-Continue \t"):
        headers = {"Content-Length": str(len(body)), "Expect": expect, **GOOD}
        with Wire(closed.port) as wire:
            for _ in range(2):
                wire.send(request("POST", "/webhooks", headers=headers))
                assert wire.read_interim() == 100
                response = wire.send(body).read()
                assert response.status in (200, 202)
                assert "connection" not in response.headers


def test_http_1_0_gets_no_100_continue(closed: Server) -> None:  # C6
    data = request("POST", "/webhooks", posted(), {**EXPECT, **GOOD})
    with Wire(closed.port) as wire:
        wire.send(data.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert wire.read_interim() == 202
