"""Bodies, URLs and headers past their limits (F40)."""

import gzip
import zlib

import pytest

from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Wire, chunked, exchange, request
from support.servers.server import Server

pytestmark = pytest.mark.usefixtures("neighbour")


@pytest.mark.parametrize(
    "encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip"]
)
def test_a_compressed_body_is_415_whatever_its_size(  # F40
    server: Server, encoding: str
) -> None:
    bombs = {"gzip": gzip.compress(bytes(10_000_000)), "deflate": zlib.compress(bytes(10_000_000))}
    body = bombs.get(encoding, gzip.compress(gzip.compress(bytes(10_000_000))))

    for path in ("/webhooks", "/webhooks/batch"):
        data = request("POST", path, body, {"Content-Encoding": encoding})
        assert "uncompressed" in assert_problem(exchange(server.port, data), 415)


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "Multipart/Mixed"])
def test_a_multipart_body_is_415(server: Server, kind: str) -> None:  # F40
    data = request("POST", "/webhooks", b"--x\r\n\r\n{}\r\n--x--", {"Content-Type": kind})

    assert "multipart" in assert_problem(exchange(server.port, data), 415)


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/batch", "/api/backup", "/health"])
@pytest.mark.parametrize("length", [16 * 1024 * 1024 + 1, 10**9, 2**63, 2**64 - 1])
def test_a_content_length_past_the_limit_is_413_before_the_body_is_read(  # F40
    server: Server, path: str, length: int
) -> None:
    head = request("POST", path, headers={**server.operator, "Content-Length": str(length)})

    assert_problem(exchange(server.port, head), 413)


def test_expect_100_continue_with_a_body_past_the_limit_is_413(server: Server) -> None:  # F40
    head = request(
        "POST", "/webhooks", headers={"Content-Length": "9999999", "Expect": "100-continue"}
    )

    with Wire(server.port) as wire:
        assert wire.send(head).read_interim() == 413


def test_expect_100_continue_gets_100_before_the_body(server: Server) -> None:
    body = posted()
    headers = {"Content-Length": str(len(body)), "Expect": "100-continue"}

    with Wire(server.port) as wire:
        assert wire.send(request("POST", "/webhooks", headers=headers)).read_interim() == 100
        assert wire.send(body).read().status == 202


def test_a_body_of_exactly_the_limit_is_accepted(server: Server) -> None:
    frame = b'{"idempotency_key":"%s","payload":"%s"}'
    filler = 1024 * 1024 - len(frame % (new_key().encode(), b""))

    fits = frame % (new_key().encode(), b"x" * filler)
    over = frame % (new_key().encode(), b"x" * (filler + 1))

    assert server.post(fits).status == 202
    assert_problem(server.post(over), 413)
    assert exchange(server.port, chunked("POST", "/webhooks", [fits])).status == 200
    assert_problem(exchange(server.port, chunked("POST", "/webhooks", [over])), 413)


@pytest.mark.parametrize("path", ["/webhooks", "/api/backup"])
def test_endless_chunks_are_413(server: Server, path: str) -> None:  # F40
    head = request("POST", path, headers={
        "Transfer-Encoding": "chunked", "Content-Type": "application/json", **server.operator,
    })  # fmt: skip
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    with Wire(server.port) as wire:
        wire.send(head)
        for _ in range(17):
            wire.send_ignoring_close(chunk)
        assert_problem(wire.read(), 413)


def test_after_an_early_refusal_the_connection_can_be_reused(server: Server) -> None:
    body = b"x" * (1024 * 1024 + 1)

    with Wire(server.port) as wire:
        assert wire.send(request("POST", "/webhooks", body)).read().status == 413
        assert wire.send(request("POST", "/webhooks", posted())).read().status == 202


@pytest.mark.parametrize("path", ["/webhooks", "/nothing", "/health?a=1"])
def test_a_url_past_8_kib_is_414(server: Server, path: str) -> None:
    mark = "&" if "?" in path else "?"
    fits = path + mark + "x" * (8192 - len(path) - 1)

    assert server.get(fits).status in (200, 400, 404)
    with Wire(server.port) as wire:
        assert_problem(wire.send_ignoring_close(request("GET", fits + "x")).read(), 414)
        assert wire.is_closed()


def test_an_endless_url_is_414(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.send_ignoring_close(b"GET /" + b"x" * 20_000)
        assert_problem(wire.read(), 414, connection="close")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Large": "x" * 65_536},
        {f"X-{number}": "x" * 1000 for number in range(70)},
        {f"X-{number}": "" for number in range(10_000)},
    ],
    ids=["one large", "many", "many small"],
)
@pytest.mark.parametrize("step", [1 << 20, 4096, 777])
def test_headers_past_64_kib_are_431(server: Server, headers: dict[str, str], step: int) -> None:
    data = request("GET", headers=headers)

    with Wire(server.port) as wire:
        for start in range(0, len(data), step):
            wire.send_ignoring_close(data[start : start + step])
        assert_problem(wire.read(), 431, connection="close")


@pytest.mark.parametrize("step", [1 << 20, 4096, 777])
def test_headers_of_60_kib_are_accepted_however_they_arrive(server: Server, step: int) -> None:
    headers = {f"X-{number}": "x" * 1000 for number in range(60)}
    data = request("POST", "/webhooks", posted(), headers)

    with Wire(server.port) as wire:
        for _ in range(3):
            for start in range(0, len(data), step):
                wire.send(data[start : start + step])
            assert wire.read().status in (202, 200)


def test_an_endless_header_is_431(server: Server) -> None:
    with Wire(server.port, timeout=5) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nX-Large: ")
        for _ in range(100):
            wire.send_ignoring_close(b"x" * 5000)
        assert_problem(wire.read(), 431, connection="close")


@pytest.mark.parametrize("endless", [b"0\r\nX: ", b"0\r\nX", b"2;", b"0"])
def test_chunk_sizes_extensions_and_trailers_are_bounded(  # F40, F52
    server: Server, endless: bytes
) -> None:
    head = b"POST /webhooks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Wire(server.port, timeout=5) as wire:
        wire.send(head + b"2\r\n{}\r\n" + endless)
        for _ in range(100):
            wire.send_ignoring_close((b"0" if endless == b"0" else b"a") * 5000)
        assert wire.read().status in (400, 431)


def test_a_body_in_chunks_of_one_byte_is_accepted(server: Server) -> None:
    body = posted(payload="x" * 60_000)
    data = chunked("POST", "/webhooks", [body[n : n + 1] for n in range(len(body))])

    assert exchange(server.port, data).status == 202


def test_20_mb_of_headers_are_431_and_not_kept_in_memory(server: Server) -> None:
    server.reset_peak()
    before = server.peak_bytes()

    with Wire(server.port) as wire:
        wire.send(b"GET /health HTTP/1.1\r\n")
        for number in range(200):
            # The first sends must all succeed: a reset could discard the response.
            send = wire.send if number < 50 else wire.send_ignoring_close
            send(b"X-Large: " + b"x" * 100_000 + b"\r\n")
        assert_problem(wire.read(), 431)

    assert server.peak_bytes() - before < 4 * 1024 * 1024


def test_a_body_of_a_gigabyte_is_not_kept_in_memory(server: Server) -> None:  # F40
    server.reset_peak()
    before = server.peak_bytes()

    with Wire(server.port) as wire:
        wire.send(request("POST", "/webhooks", headers={"Content-Length": str(10**9)}))
        for _ in range(64):
            wire.send_ignoring_close(bytes(1024 * 1024))
        assert_problem(wire.read(), 413)

    assert server.peak_bytes() - before < 4 * 1024 * 1024
