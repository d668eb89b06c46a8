"""Secrets stay out of logs, metrics and errors (F51)."""

from collections.abc import Iterator

import pytest

from support.http.posting import posted
from support.http.wire import Disconnected, Response, Wire, chunked, exchange, request
from support.servers.server import Server, running

SECRET = "hunter2-5f0e"
HEADERS = {
    "Authorization": f"Bearer {SECRET}",
    "Cookie": f"session={SECRET}",
    "X-Signature": SECRET,
    "X-Hub-Signature-256": f"sha256={SECRET}",
    "Proxy-Authorization": f"Basic {SECRET}",
    "X-Api-Key": SECRET,
    "Referer": f"https://example.com/?token={SECRET}",
    "Idempotency-Key": SECRET,
}
QUERY = f"?token={SECRET}&api_key={SECRET}"


def event(**more: object) -> bytes:
    return posted(SECRET, {"password": SECRET, "nested": [SECRET]}, **more)


REQUESTS = {
    "a new event": request("POST", "/webhooks" + QUERY, event(), HEADERS),
    "a conflict": request("POST", "/webhooks" + QUERY, posted(SECRET, f"{SECRET}2"), HEADERS),
    "a batch": request("POST", "/webhooks/batch" + QUERY, event() + b"\n" + event()[:-1], HEADERS),
    "no JSON": request("POST", "/webhooks" + QUERY, b"{" + SECRET.encode(), HEADERS),
    "a wrong type": request("POST", "/webhooks", event(lane=[SECRET]), HEADERS),
    "a wrong time": request("POST", "/webhooks", event(source_emitted_at=SECRET), HEADERS),
    "a wrong number": request("POST", "/webhooks", event(source_sequence=SECRET), HEADERS),
    "keys that disagree": request("POST", "/webhooks", posted(f"{SECRET}3"), HEADERS),
    "a control character": request("POST", "/webhooks", posted(f"{SECRET}\n"), {}),
    "no UTF-8": request("POST", "/webhooks", SECRET.encode() + b"\xff", HEADERS),
    "chunks": chunked("POST", "/webhooks" + QUERY, [event()]),
    "too large": request(
        "POST", "/webhooks" + QUERY, b"", {**HEADERS, "Content-Length": "99999999"}
    ),
    "compressed": request("POST", "/webhooks", event(), {**HEADERS, "Content-Encoding": SECRET}),
    "a strange encoding of transfer": request(
        "POST", "/webhooks", headers={"Transfer-Encoding": SECRET}
    ),
    "a lookup by key": request("GET", f"/webhooks?idempotency_key={SECRET}9&token={SECRET}"),
    "a bad lookup by key": request("GET", f"/webhooks?idempotency_key={SECRET}%00"),
    "a bad source": request("GET", f"/webhooks?idempotency_key=a&source={SECRET * 30}"),
    "a lookup by id": request("GET", f"/webhooks/{SECRET}", headers=HEADERS),
    "a token in the path": request("POST", f"/in/stripe/{SECRET}", event(), HEADERS),
    "a bad escape": request("GET", f"/{SECRET}%zz", headers=HEADERS),
    "a wrong method": request("PUT", f"/webhooks/{SECRET}", event(), HEADERS),
    "a wrong method for POST": request("DELETE", "/webhooks" + QUERY, event(), HEADERS),
    "a backup": request("POST", "/api/backup", b'{"nam":"%s"}' % SECRET.encode(), HEADERS),
    "a backup nowhere": request("POST", "/api/backup", b'{"name":"%s"}' % SECRET.encode(), HEADERS),
    "a backup without JSON": request("POST", "/api/backup", SECRET.encode(), HEADERS),
    "a forged host": request("GET", "/metrics" + QUERY, headers={"Host": SECRET}),
    "a user in the URL": request("GET", f"http://user:{SECRET}@localhost/health"),
    "a URL too long": request("GET", f"/{SECRET}" + "x" * 9000, headers=HEADERS),
    "headers too large": request("GET", headers={"X-Key": SECRET * 6000}),
    "a broken header": f"GET / HTTP/1.1\r\nAuthorization {SECRET}\r\n\r\n".encode(),
    "a broken method": f"{SECRET} / HTTP/1.1\r\n\r\n".encode(),
    "a broken version": f"GET / {SECRET}\r\n\r\n".encode(),
    "an unfit request id": request("GET", headers={"X-Request-ID": f"{SECRET} {SECRET}"}),
    "an upgrade": request("GET", headers={"Upgrade": SECRET, "Connection": "upgrade"}),
}


@pytest.fixture(scope="module", params=["open", "closed"])
def chatty(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    tokens = {"INGEST_TOKEN": "correct-horse-battery", "API_TOKEN": "staple-horse-battery"}
    settings = {"LOG_LEVEL": "DEBUG", **(tokens if request.param == "closed" else {})}
    with running(tmp_path_factory.mktemp("chatty"), settings) as server:
        yield server


@pytest.mark.parametrize("name", REQUESTS)
def test_no_refusal_repeats_a_secret(chatty: Server, name: str) -> None:
    response = exchange(chatty.port, REQUESTS[name])

    assert response.status < 500
    receipt_key = f'"idempotency_key":"{SECRET}"'.encode()  # the receipt repeats the sender's key
    assert SECRET.encode() not in response.body.replace(receipt_key, b"")
    assert SECRET not in repr(response.headers)


def test_no_secret_is_in_the_log_or_the_metrics(chatty: Server) -> None:
    for data in REQUESTS.values():
        with Wire(chatty.port) as wire:
            wire.send_ignoring_close(data)
            read_if_open(wire)
    for data in REQUESTS.values():  # and clients that disconnect halfway
        with Wire(chatty.port) as wire:
            wire.send_ignoring_close(data[:-3])

    metrics = chatty.get("/metrics")
    assert metrics.status == 200
    assert SECRET.encode() not in metrics.body
    assert SECRET not in chatty.log
    for token in ("correct-horse-battery", chatty.token):
        assert token not in chatty.log
        assert token.encode() not in metrics.body


def read_if_open(wire: Wire) -> Response | None:
    try:
        return wire.read()
    except Disconnected:
        return None
