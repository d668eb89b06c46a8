"""Requests that no client library would send (F40, F42, F52): each is refused as it should be,
never with a 5xx, never with silence, and never at the cost of a neighbour."""

import gzip
import zlib
from collections.abc import Iterator

import pytest

from support.posting import new_key, posted
from support.problems import assert_problem
from support.server import Server
from support.wire import Cut, Wire, chunked, exchange, request

HEAD = b"POST /webhooks HTTP/1.1\r\nHost: localhost\r\n"
GOOD = b'{"idempotency_key":"%(key)s","payload":1}'


@pytest.fixture(autouse=True)
def _neighbour(server: Server) -> Iterator[None]:
    """Somebody else is connected all the time, and is served before and after."""
    with Wire(server.port) as wire:
        assert wire.send(request()).read().status == 200
        yield
        assert wire.send(request("POST", "/webhooks", posted())).read().status == 202


def body_as(length: bytes) -> bytes:
    return HEAD + b"Content-Length: " + length + b"\r\n\r\n" + GOOD


def chunks_as(text: bytes, *headers: bytes) -> bytes:
    return HEAD + b"".join(h + b"\r\n" for h in headers) + (
        b"Transfer-Encoding: chunked\r\n\r\n" + text
    )  # fmt: skip


BROKEN = {
    "a negative length": body_as(b"-1"),
    "a signed length": body_as(b"+41"),
    "a hexadecimal length": body_as(b"0x29"),
    "an empty length": body_as(b""),
    "two numbers as length": body_as(b"41, 41"),
    "a fraction as length": body_as(b"41.0"),
    "digits that are no ASCII": body_as("٤١".encode()),
    "a length past 64 bits": body_as(b"9" * 30),
    "two equal lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "length and chunks": chunks_as(b"5\r\nhello\r\n0\r\n\r\n", b"Content-Length: 5"),
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
    "an unknown transfer encoding": HEAD + b"Transfer-Encoding: gzip\r\n\r\nhello",
    "chunked not last": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "identity as transfer encoding": HEAD + b"Transfer-Encoding: identity\r\n\r\nhello",
    "chunked by another spelling": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a chunk size that is no number": chunks_as(b"zz\r\nhello\r\n0\r\n\r\n"),
    "a negative chunk size": chunks_as(b"-5\r\nhello\r\n0\r\n\r\n"),
    "no chunk size": chunks_as(b"\r\nhello\r\n0\r\n\r\n"),
    "a chunk size past 64 bits": chunks_as(b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    "a chunk size with a space": chunks_as(b"5 \r\nhello\r\n0\r\n\r\n"),
    "a chunk longer than said": chunks_as(b"3\r\nhello\r\n0\r\n\r\n"),
    "a chunk ended by LF": chunks_as(b"5\r\nhello\n0\r\n\r\n"),
    "a chunk size ended by LF": chunks_as(b"5\nhello\r\n0\r\n\r\n"),
    "a NUL in a chunk extension": chunks_as(b"5;a=\x00\r\nhello\r\n0\r\n\r\n"),
    "a folded header": HEAD + b"X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a header that begins with a space": HEAD + b" X: a\r\n\r\n",
    "a space before the colon": HEAD + b"Content-Length : 5\r\n\r\nhello",
    "a header without a colon": HEAD + b"Content-Length\r\n\r\n",
    "a header without a name": HEAD + b": a\r\n\r\n",
    "a NUL in a header name": HEAD + b"X\x00: a\r\n\r\n",
    "a NUL in a header": HEAD + b"X: a\x00b\r\n\r\n",
    "a control character in a header": HEAD + b"X: a\x01b\r\n\r\n",
    "a lone CR in a header": HEAD + b"X: a\rb\r\n\r\n",
    "headers ended by LF": HEAD + b"X: a\nY: b\r\n\r\n",
    "a name that is no ASCII": HEAD + "Ä: a\r\n\r\n".encode(),
    "lines ended by LF": b"GET /health HTTP/1.1\nHost: localhost\n\n",
    "a NUL in the path": b"GET /\x00 HTTP/1.1\r\n\r\n",
    "a raw byte in the path": b"GET /\xff HTTP/1.1\r\n\r\n",
    "raw UTF-8 in the path": "GET /ä HTTP/1.1\r\n\r\n".encode(),
    "a raw byte in the query": b"GET /health?a=\xff HTTP/1.1\r\n\r\n",
    "a NUL in the query": b"GET /health?a=\x00 HTTP/1.1\r\n\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\n\r\n",
    "a tab in the request line": b"GET\t/health\tHTTP/1.1\r\n\r\n",
    "no path": b"GET HTTP/1.1\r\n\r\n",
    "a path without a slash": b"GET health HTTP/1.1\r\n\r\n",
    "only a query": b"GET ?a=1 HTTP/1.1\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "HTTP/0.9": b"GET /health HTTP/0.9\r\n\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "HTTP/1.2": b"GET /health HTTP/1.2\r\n\r\n",
    "HTTP/11": b"GET /health HTTP/11\r\n\r\n",
    "no HTTP": b"GET /health FTP/1.1\r\n\r\n",
    "a method in lower case": b"get /health HTTP/1.1\r\n\r\n",
    "an unknown method": b"EXPLODE /health HTTP/1.1\r\n\r\n",
    "a long unknown method": b"X" * 100_000,
    "a NUL first": b"\x00" * 100,
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "an SSH banner": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a PROXY line": b"PROXY TCP4 1.2.3.4 127.0.0.1 1 8000\r\n" + request(),
    "a redis command": b"*1\r\n$4\r\nPING\r\n",
    "an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_protocol_is_400_and_the_end_of_the_connection(  # F42, F52
    server: Server, name: str
) -> None:
    with Wire(server.port) as wire:
        wire.send_all_it_takes(fill(BROKEN[name]))
        assert_problem(wire.read(), 400, connection="close")
        with pytest.raises(Cut):
            wire.read()


@pytest.mark.parametrize("name", [name for name in BROKEN if "PROXY" not in name])
def test_it_is_400_too_when_it_comes_byte_by_byte(server: Server, name: str) -> None:
    with Wire(server.port) as wire:
        data = fill(BROKEN[name])[:300]
        for position in range(len(data)):
            wire.send_all_it_takes(data[position : position + 1])
        if len(BROKEN[name]) > 300:
            return
        assert_problem(wire.read(), 400, connection="close")


SOUND = {
    "white space around the length": body_as(b" 66 \t"),
    "leading zeros in the length": body_as(b"00066"),
    "header names in capitals": (HEAD + b"CONTENT-LENGTH: 66\r\n\r\n" + GOOD),
    "a chunk extension": chunks_as(b"42;a=b\r\n" + GOOD + b"\r\n0\r\n\r\n"),
    "chunk sizes with zeros": chunks_as(b"00042\r\n" + GOOD + b"\r\n0\r\n\r\n"),
    "a trailer": chunks_as(b"42\r\n" + GOOD + b"\r\n0\r\nX-Trailer: a\r\n\r\n"),
    "chunked in capitals": HEAD
    + b"Transfer-Encoding: CHUNKED\r\n\r\n42\r\n"
    + GOOD
    + b"\r\n0\r\n\r\n",
    "empty lines first": b"\r\n\r\n" + body_as(b"66"),
    "an absolute URL": body_as(b"66").replace(b" /webhooks", b" http://localhost/webhooks"),
    "a query": body_as(b"66").replace(b"/webhooks", b"/webhooks?token=%00%ff%zz"),
    "an escaped path": body_as(b"66").replace(b"/webhooks", b"/%77ebhooks"),
    "no host": body_as(b"66").replace(b"Host: localhost\r\n", b""),
    "HTTP/1.0": body_as(b"66").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "identity as encoding": HEAD
    + b"Content-Encoding: Identity\r\nContent-Length: 66\r\n\r\n"
    + GOOD,
    "no content type": body_as(b"66"),
    "a form's content type": (
        HEAD
        + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 66\r\n\r\n"
        + GOOD
    ),
    "an expectation": HEAD + b"Expect: 100-continue\r\nContent-Length: 66\r\n\r\n" + GOOD,
    "an unknown expectation": HEAD + b"Expect: miracles\r\nContent-Length: 66\r\n\r\n" + GOOD,
    "Latin-1 in a header": HEAD + b"X-Name: caf\xe9\r\nContent-Length: 66\r\n\r\n" + GOOD,
    "a websocket upgrade": (
        HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 66\r\n\r\n" + GOOD
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_only_looks_odd_is_taken(server: Server, name: str) -> None:
    assert len(fill(GOOD)) == 66

    answer = exchange(server.port, fill(SOUND[name]))

    assert answer.status == 202, answer


def test_http_1_0_is_one_request_a_connection(server: Server) -> None:
    with Wire(server.port) as wire:
        answer = wire.send(request().replace(b"HTTP/1.1", b"HTTP/1.0")).read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert wire.is_closed()


@pytest.mark.parametrize(
    "encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip"]
)
def test_a_compressed_body_is_415_whatever_it_would_become(  # F40
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
def test_a_body_announced_as_too_large_is_413_before_it_is_read(  # F40
    server: Server, path: str, length: int
) -> None:
    head = request("POST", path, headers={"Content-Length": str(length)})

    assert_problem(exchange(server.port, head), 413)


def test_who_asks_before_sending_too_much_is_not_told_to_go_on(server: Server) -> None:  # F40
    head = request(
        "POST", "/webhooks", headers={"Content-Length": "9999999", "Expect": "100-continue"}
    )

    with Wire(server.port) as wire:
        assert wire.send(head).read_interim() == 413


def test_who_asks_before_sending_is_told_to_go_on(server: Server) -> None:
    body = posted()
    headers = {"Content-Length": str(len(body)), "Expect": "100-continue"}

    with Wire(server.port) as wire:
        assert wire.send(request("POST", "/webhooks", headers=headers)).read_interim() == 100
        assert wire.send(body).read().status == 202


def test_a_body_of_exactly_the_limit_is_taken(server: Server) -> None:
    frame = b'{"idempotency_key":"%s","payload":"%s"}'
    filler = 1024 * 1024 - len(frame % (new_key().encode(), b""))

    fits = frame % (new_key().encode(), b"x" * filler)
    over = frame % (new_key().encode(), b"x" * (filler + 1))

    assert server.post(fits).status == 202
    assert_problem(server.post(over), 413)
    assert exchange(server.port, chunked("POST", "/webhooks", [fits])).status == 200
    assert_problem(exchange(server.port, chunked("POST", "/webhooks", [over])), 413)


@pytest.mark.parametrize("path", ["/webhooks", "/api/backup"])
def test_chunks_without_end_are_413(server: Server, path: str) -> None:  # F40
    head = request("POST", path, headers={
        "Transfer-Encoding": "chunked", "Content-Type": "application/json",
    })  # fmt: skip
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    with Wire(server.port) as wire:
        wire.send(head)
        for _ in range(17):
            wire.send_all_it_takes(chunk)
        assert_problem(wire.read(), 413)


def test_who_is_refused_early_may_send_the_rest_and_go_on(server: Server) -> None:
    body = b"x" * (1024 * 1024 + 1)

    with Wire(server.port) as wire:
        assert wire.send(request("POST", "/webhooks", body)).read().status == 413
        assert wire.send(request("POST", "/webhooks", posted())).read().status == 202


@pytest.mark.parametrize("path", ["/webhooks", "/nothing", "/health?a=1"])
def test_a_url_past_8_kib_is_414(server: Server, path: str) -> None:
    mark = "&" if "?" in path else "?"
    fits = path + mark + "x" * (8192 - len(path) - 1)

    assert exchange(server.port, request("GET", fits)).status in (200, 400, 404)
    with Wire(server.port) as wire:
        assert_problem(wire.send_all_it_takes(request("GET", fits + "x")).read(), 414)
        assert wire.is_closed()


def test_a_url_without_end_is_414(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.send_all_it_takes(b"GET /" + b"x" * 20_000)
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
            wire.send_all_it_takes(data[start : start + step])
        assert_problem(wire.read(), 431, connection="close")


@pytest.mark.parametrize("step", [1 << 20, 4096, 777])
def test_headers_of_60_kib_are_taken_however_they_arrive(server: Server, step: int) -> None:
    headers = {f"X-{number}": "x" * 1000 for number in range(60)}
    data = request("POST", "/webhooks", posted(), headers)

    with Wire(server.port) as wire:
        for _ in range(3):
            for start in range(0, len(data), step):
                wire.send(data[start : start + step])
            assert wire.read().status in (202, 200)


def test_a_header_without_end_is_431(server: Server) -> None:
    with Wire(server.port, timeout=5) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nX-Large: ")
        for _ in range(100):
            wire.send_all_it_takes(b"x" * 5000)
        assert_problem(wire.read(), 431, connection="close")


def test_20_mb_of_headers_are_431_and_not_kept(server: Server) -> None:
    server.forget_peak()
    before = server.peak_bytes()

    with Wire(server.port) as wire:
        wire.send(b"GET /health HTTP/1.1\r\n")
        for number in range(200):
            # No reset at once: it could take the answer with it.
            send = wire.send if number < 50 else wire.send_all_it_takes
            send(b"X-Large: " + b"x" * 100_000 + b"\r\n")
        assert_problem(wire.read(), 431)

    assert server.peak_bytes() - before < 4 * 1024 * 1024


def test_a_gigabyte_announced_and_sent_is_not_kept(server: Server) -> None:  # F40
    server.forget_peak()
    before = server.peak_bytes()

    with Wire(server.port) as wire:
        wire.send(request("POST", "/webhooks", headers={"Content-Length": str(10**9)}))
        for _ in range(64):
            wire.send_all_it_takes(bytes(1024 * 1024))
        assert_problem(wire.read(), 413)

    assert server.peak_bytes() - before < 4 * 1024 * 1024


@pytest.mark.parametrize("together", [True, False])
def test_an_offer_of_http_2_is_passed_over(server: Server, together: bool) -> None:
    """As `curl --http2` makes it: the body belongs to the request and must not become another."""
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


def test_a_body_behind_an_offer_of_http_2_is_no_request(server: Server) -> None:  # F52
    inner = request("POST", "/webhooks", posted())
    offer = {"Connection": "Upgrade", "Upgrade": "h2c"}

    with Wire(server.port) as wire:
        wire.send(request("POST", "/webhooks", inner, offer) + request("GET", "/health"))
        assert_problem(wire.read(), 400)
        assert wire.read().json()["status"] == "ok"
        assert wire.send(request("GET", "/health")).read().status == 200


def test_connect_is_refused(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.send(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
        assert_problem(wire.read(), 405, connection="close")


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    keys = [new_key() for _ in range(50)]
    requests = [
        data
        for key in keys
        for data in (request("POST", "/webhooks", posted(key)), request("GET", "/health"))
    ]

    with Wire(server.port) as wire:
        wire.send(b"".join(requests))
        answers = [wire.read() for _ in requests]

    assert [answer.json()["idempotency_key"] for answer in answers[::2]] == keys
    assert {answer.status for answer in answers[::2]} == {202}
    assert all("durability" in answer.json() for answer in answers[1::2])


def test_a_flood_of_pipelined_requests_is_cut(server: Server) -> None:
    server.forget_peak()
    before = server.peak_bytes()

    with Wire(server.port) as wire:
        wire.send_all_it_takes(request() * 5000)
        statuses: list[int] = []
        while statuses[-1:] != [429]:
            statuses.append(wire.read().status)
        assert wire.is_closed()

    assert set(statuses[:-1]) == {200}
    assert len(statuses) > 100
    assert server.peak_bytes() - before < 8 * 1024 * 1024


@pytest.mark.parametrize(
    "name", ["a TLS hello", "a folded header", "two lengths", "a negative chunk size"]
)
def test_what_came_before_a_breach_is_answered_first(server: Server, name: str) -> None:
    keys = [new_key() for _ in range(5)]
    sound = b"".join(request("POST", "/webhooks", posted(key)) for key in keys)

    with Wire(server.port) as wire:
        wire.send_all_it_takes(sound + fill(BROKEN[name]))
        answers = [wire.read() for _ in keys]
        assert_problem(wire.read(), 400, connection="close")
        assert wire.is_closed()

    assert [answer.json()["idempotency_key"] for answer in answers] == keys
    assert {answer.status for answer in answers} == {202}


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


def fill(template: bytes) -> bytes:
    return template.replace(b"%(key)s", new_key().encode())
