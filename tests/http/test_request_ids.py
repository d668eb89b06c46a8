"""Every response has a request id, and the log names it too (W14)."""

import re

import pytest

from support.http.posting import UNKNOWN_ID, new_key, posted
from support.http.wire import Response, exchange, request
from support.servers.server import Server
from support.time.polling import eventually

GENERATED = re.compile(r"[0-9a-f]{16}")
EVERY_KIND = {
    "new": request("POST", "/webhooks", b'{"payload":1}'),
    "bad body": request("POST", "/webhooks", b"{"),
    "batch": request("POST", "/webhooks/batch", b"{}\n"),
    "too large": request("POST", "/webhooks", b"", {"Content-Length": "1000000000"}),
    "compressed": request("POST", "/webhooks", b"", {"Content-Encoding": "gzip"}),
    "missing": request("GET", f"/webhooks/{UNKNOWN_ID}"),
    "bad id": request("GET", "/webhooks/x"),
    "no route": request("GET", "/nothing"),
    "bad url": request("GET", "/%ff"),
    "method": request("PUT", "/webhooks"),
    "unauthorized": request("GET", "/metrics", headers={"Host": "example.com"}),
    "health": request("GET", "/health"),
    "ready": request("GET", "/ready"),
    "metrics": request("GET", "/metrics"),
    "url too long": request("GET", "/" + "x" * 9000),
    "too many headers": request("GET", "/", headers={"X-Large": "x" * 70_000}),
    "bad length": request("POST", "/webhooks", headers={"Content-Length": "-1"}),
    "version": b"GET / HTTP/2.0\r\n\r\n",
    "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_response_has_its_own_request_id(server: Server, kind: str) -> None:
    first, second = (exchange(server.port, EVERY_KIND[kind]) for _ in range(2))

    assert GENERATED.fullmatch(first.headers["x-request-id"])
    assert GENERATED.fullmatch(second.headers["x-request-id"])
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


@pytest.mark.parametrize("sent_id", ["a", "a" * 128, "trace/1:2.3+4=5-6_7", UNKNOWN_ID])
@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/batch", "/health", "/nothing"])
def test_a_valid_id_is_honoured(server: Server, sent_id: str, path: str) -> None:
    assert send(server, path, sent_id).headers["x-request-id"] == sent_id


@pytest.mark.parametrize(
    "sent_id", ["", "a" * 129, "two words", "a,b", "é", "<script>", 'a"b', "a;b", "{}"]
)
@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/batch", "/health", "/nothing"])
def test_an_invalid_id_is_replaced(server: Server, sent_id: str, path: str) -> None:
    assert GENERATED.fullmatch(send(server, path, sent_id).headers["x-request-id"])


def test_the_first_of_two_request_ids_is_honoured(server: Server) -> None:
    twice = "one\r\nX-Request-ID: two"

    response = server.post(posted(), {"X-Request-ID": twice})

    assert response.status == 202
    assert response.headers["x-request-id"] == "one"


def test_an_id_before_the_invalid_part_of_a_request_is_honoured(server: Server) -> None:
    data = request("GET", headers={"X-Request-ID": "mine", "X-Large": "x" * 70_000})

    assert exchange(server.port, data).headers["x-request-id"] == "mine"


@pytest.mark.parametrize(
    ("repeats", "payload", "line"),
    [(0, 1, "event received"), (1, 1, "event duplicate"), (1, 2, "event conflict")],
)
def test_the_log_names_event_and_request(
    server: Server, repeats: int, payload: int, line: str
) -> None:
    key = new_key()
    for _ in range(repeats):
        server.post(posted(key, 1))
    request_id = new_key()

    event_id = server.post(posted(key, payload), {"X-Request-ID": request_id}).json()["id"]

    record = eventually(lambda: next(iter(lines_about(server, request_id)), None))
    assert record is not None
    assert record["event"] == line
    assert record["event_id"] == event_id
    assert record["level"] == "info"


def test_an_event_keeps_the_id_of_its_first_request(server: Server) -> None:
    key = new_key()
    event_id = server.post(posted(key), {"X-Request-ID": "first"}).json()["id"]
    server.post(posted(key), {"X-Request-ID": "second"})

    assert server.row(event_id, "request_id") == ("first",)


def test_every_line_of_a_batch_is_logged_with_the_id_of_its_request(server: Server) -> None:
    request_id = new_key()
    body = b"\n".join(posted() for _ in range(3))

    response = exchange(
        server.port, request("POST", "/webhooks/batch", body, {"X-Request-ID": request_id})
    )

    ids = {line["id"] for line in response.lines()}
    assert {record["event_id"] for record in lines_about(server, request_id)} == ids


def send(server: Server, path: str, request_id: str) -> Response:
    method = "POST" if path.startswith("/webhooks") else "GET"
    return exchange(server.port, request(method, path, b"{}", {"X-Request-ID": request_id}))


def lines_about(server: Server, request_id: str) -> list[dict[str, object]]:
    return [record for record in server.records() if record.get("request_id") == request_id]
