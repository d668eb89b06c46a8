"""Looking up events, and paths that are not routes (W13, F42)."""

import pytest

from support.http.posting import UNKNOWN_ID, new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Wire, exchange, request
from support.servers.server import Server

FIELDS = ["id", "idempotency_key", "status", "created_at", "updated_at"]


def test_an_event_is_found_by_id_and_by_key(server: Server) -> None:  # W13
    key = new_key()
    receipt = server.post(posted(key)).json()

    by_id = server.get(f"/webhooks/{receipt['id']}")
    by_key = server.get(f"/webhooks?idempotency_key={key}")

    assert (by_id.status, by_key.status) == (200, 200)
    assert by_id.json() == by_key.json()
    assert list(by_id.json()) == FIELDS
    assert {name: by_id.json()[name] for name in receipt} == receipt
    assert by_id.json()["updated_at"] == receipt["created_at"]


@pytest.mark.parametrize("key", ["ключ 😀", "a b+c%/?&=#", "'; DROP TABLE events; --", "\u200b"])
def test_any_accepted_key_can_be_looked_up(server: Server, key: str) -> None:
    key += new_key()
    receipt = server.post(posted(key)).json()

    escaped = "".join(f"%{byte:02X}" for byte in key.encode())
    response = server.get(f"/webhooks?idempotency_key={escaped}")

    assert response.status == 200
    assert response.json()["id"] == receipt["id"]
    assert response.json()["idempotency_key"] == receipt["idempotency_key"] == key


@pytest.mark.parametrize(
    "path",
    [f"/webhooks/{UNKNOWN_ID}", "/webhooks?idempotency_key=nobody", "/", "/nothing", "/webhooks/",
     "/webhooks/a/b", "//webhooks", "/WEBHOOKS", "/api", "/docs", "/console", "/in/stripe",
     "/.env", "/%2e%2e/etc/passwd", "/nothing/%00"],
)  # fmt: skip
def test_an_unknown_event_or_path_is_404(server: Server, path: str) -> None:
    assert_problem(server.get(path), 404)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/webhooks", "idempotency_key"),
        ("/webhooks?source=webhooks", "idempotency_key"),
        ("/webhooks?idempotency_key=", "idempotency_key"),
        ("/webhooks?idempotency_key=" + "k" * 256, "255"),
        ("/webhooks?idempotency_key=a&source=", "source"),
        ("/webhooks?idempotency_key=a&source=" + "s" * 256, "255"),
        ("/webhooks?idempotency_key=%00", "U+0000"),
        ("/webhooks?idempotency_key=a%0ab", "U+000A"),
        ("/webhooks?idempotency_key=a&source=%1f", "U+001F"),
        ("/webhooks?idempotency_key=%C2%85", "U+0085"),
        ("/webhooks?idempotency_key=%ff", "UTF-8"),
        ("/webhooks?idempotency_key=%c3", "UTF-8"),
        ("/webhooks?idempotency_key=%ed%a0%80", "UTF-8"),
        ("/webhooks?idempotency_key=a&other=%ff", "UTF-8"),
        ("/webhooks?idempotency_key=%", "%"),
        ("/webhooks?idempotency_key=%zz", "%"),
        ("/webhooks?idempotency_key=100%25%2", "%"),
        ("/webhooks/not-a-uuid", "UUID"),
        ("/webhooks/123", "UUID"),
        ("/webhooks/%00", "UUID"),
        ("/webhooks/%ff", "UTF-8"),
        ("/webhooks/%", "%"),
        ("/%c3%28", "UTF-8"),
    ],
)
def test_an_invalid_look_up_is_400_with_the_reason(  # F42
    server: Server, path: str, reason: str
) -> None:
    assert reason in assert_problem(server.get(path, server.operator), 400)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/webhooks", "GET, POST"),
        ("DELETE", "/webhooks", "GET, POST"),
        ("OPTIONS", "/webhooks", "GET, POST"),
        ("GET", "/webhooks/batch", "POST"),
        ("PATCH", "/webhooks/batch", "POST"),
        ("POST", "/health", "GET"),
        ("TRACE", "/ready", "GET"),
        ("DELETE", f"/webhooks/{UNKNOWN_ID}", "GET"),
        ("POST", "/metrics", "GET"),
        ("GET", "/api/backup", "POST"),
        ("PROPFIND", "/webhooks", "GET, POST"),
        ("QUERY", "/webhooks", "GET, POST"),
    ],
)
def test_a_method_that_a_path_does_not_accept_is_405(
    server: Server, method: str, path: str, allowed: str
) -> None:
    sent = request(method, path, b"", server.operator)
    assert_problem(exchange(server.port, sent), 405, allow=allowed)


def test_head_is_405_and_without_a_body(server: Server) -> None:
    raw = b""

    with Wire(server.port) as wire:
        wire.send(request("HEAD", "/webhooks") + request("GET", "/health"))
        while b"ok" not in raw:
            raw += wire.socket.recv(65536)

    head, _, rest = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"x-request-id: " in head
    assert rest.startswith(b"HTTP/1.1 200 ")


def test_health_reports_the_durability(server: Server) -> None:
    assert server.get("/health").json() == {"status": "ok", "durability": "full"}
    assert server.get("/ready").json() == {"ready": True}


def test_a_browser_may_not_guess_the_type_of_a_response(server: Server) -> None:  # F49
    for path in ("/webhooks?idempotency_key=nobody", "/health", "/nothing", "/metrics"):
        assert server.get(path).headers["x-content-type-options"] == "nosniff"
