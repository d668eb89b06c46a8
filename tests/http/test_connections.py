"""Many requests on one connection, and one request in many pieces (F52)."""

import pytest

from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Wire, chunked, exchange, request
from support.servers.server import Server

pytestmark = pytest.mark.usefixtures("neighbour")

INVALID = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a folded header": b"GET /health HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    "two lengths": request(
        "POST", "/webhooks", b"ab", {"Content-Length": "2\r\nContent-Length: 3"}
    ),
    "a bad chunk": request("POST", "/webhooks", headers={"Transfer-Encoding": "chunked"})
    + b"-5\r\n",
}


@pytest.mark.parametrize("together", [True, False])
def test_an_upgrade_to_http_2_is_ignored(server: Server, together: bool) -> None:
    """`curl --http2` sends this. The body belongs to the request and must not become another."""
    offer = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA",
    }
    with Wire(server.port) as wire:
        for _ in range(3):
            data = request("POST", "/webhooks", posted(), offer)
            if together:
                wire.send(data)
            else:
                head, _, body = data.partition(b"\r\n\r\n")
                wire.send(head + b"\r\n\r\n")
                wire.send(body)
            assert wire.read().status == 202
        wire.send(request("GET", "/health", headers=offer))
        assert wire.read().status == 200


def test_a_body_after_an_upgrade_header_is_not_a_request(server: Server) -> None:  # F52
    inner = request("POST", "/webhooks", posted())
    offer = {"Connection": "Upgrade", "Upgrade": "h2c"}

    with Wire(server.port) as wire:
        wire.send(request("POST", "/webhooks", inner, offer) + request("GET", "/health"))
        assert_problem(wire.read(), 400)
        assert wire.read().json()["status"] == "ok"
        assert wire.send(request("GET", "/health")).read().status == 200


def test_pipelined_requests_get_their_responses_in_order(server: Server) -> None:
    keys = [new_key() for _ in range(50)]
    requests = [
        data
        for key in keys
        for data in (request("POST", "/webhooks", posted(key)), request("GET", "/health"))
    ]

    with Wire(server.port) as wire:
        wire.send(b"".join(requests))
        responses = [wire.read() for _ in requests]

    assert [response.json()["idempotency_key"] for response in responses[::2]] == keys
    assert {response.status for response in responses[::2]} == {202}
    assert all("durability" in response.json() for response in responses[1::2])


def test_a_flood_of_pipelined_requests_is_refused(server: Server) -> None:
    server.reset_peak()
    before = server.peak_bytes()

    with Wire(server.port) as wire:
        wire.send_ignoring_close(request() * 5000)
        statuses: list[int] = []
        while statuses[-1:] != [429]:
            statuses.append(wire.read().status)
        assert wire.is_closed()

    assert set(statuses[:-1]) == {200}
    assert len(statuses) > 100
    assert server.peak_bytes() - before < 8 * 1024 * 1024


@pytest.mark.parametrize("name", INVALID)
def test_requests_before_an_invalid_one_get_their_responses_first(
    server: Server, name: str
) -> None:
    keys = [new_key() for _ in range(5)]
    valid = b"".join(request("POST", "/webhooks", posted(key)) for key in keys)

    with Wire(server.port) as wire:
        wire.send_ignoring_close(valid + INVALID[name])
        responses = [wire.read() for _ in keys]
        assert_problem(wire.read(), 400, connection="close")
        assert wire.is_closed()

    assert [response.json()["idempotency_key"] for response in responses] == keys
    assert {response.status for response in responses} == {202}


def test_a_large_body_and_the_next_request_in_one_piece_are_two_requests(server: Server) -> None:
    large = request("POST", "/webhooks", posted(payload="x" * 100_000))

    with Wire(server.port) as wire:
        for cut in (10, 60, 90):
            after = request("GET", "/health", headers={"X-Filler": "x" * 100})
            wire.send(large + after[:cut])
            assert wire.read().status in (202, 200)
            assert wire.send(after[cut:]).read().status == 200


def test_a_request_may_arrive_byte_by_byte(server: Server) -> None:
    data = request("POST", "/webhooks", posted())

    with Wire(server.port) as wire:
        for position in range(len(data)):
            wire.send(data[position : position + 1])
        assert wire.read().status == 202


def test_chunks_may_be_of_one_byte(server: Server) -> None:
    body = posted()
    data = chunked("POST", "/webhooks", [body[i : i + 1] for i in range(len(body))])

    assert exchange(server.port, data).status == 202


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_half_a_request_leaves_nothing_behind(server: Server, share: float) -> None:
    key = new_key()
    data = request("POST", "/webhooks", posted(key, "x" * 100_000))

    for _ in range(20):
        with Wire(server.port) as wire:
            wire.send(data[: int(len(data) * share)])

    assert server.get(f"/webhooks?idempotency_key={key}").status == 404
