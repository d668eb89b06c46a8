"""Requests that no client library would send (F42, F52): each is refused with a 4xx, never with a
5xx or with silence, and never at the cost of another client."""

import pytest

from support.http.posting import new_key
from support.http.problems import assert_problem
from support.http.wire import Disconnected, Wire, exchange, request
from support.servers.server import Server

pytestmark = pytest.mark.usefixtures("neighbour")

HEAD = b"POST /webhooks HTTP/1.1\r\nHost: localhost\r\n"
GOOD = b'{"idempotency_key":"%(key)s","payload":1}'


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
    "a response": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_request_that_breaks_the_protocol_is_400_and_ends_the_connection(  # F42, F52
    server: Server, name: str
) -> None:
    with Wire(server.port) as wire:
        wire.send_ignoring_close(fill(BROKEN[name]))
        assert_problem(wire.read(), 400, connection="close")
        with pytest.raises(Disconnected):
            wire.read()


@pytest.mark.parametrize("name", [name for name in BROKEN if "PROXY" not in name])
def test_a_broken_request_that_arrives_byte_by_byte_is_400_too(server: Server, name: str) -> None:
    with Wire(server.port) as wire:
        data = fill(BROKEN[name])[:300]
        for position in range(len(data)):
            wire.send_ignoring_close(data[position : position + 1])
        if len(BROKEN[name]) > 300:
            return
        assert_problem(wire.read(), 400, connection="close")


UNUSUAL = {
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


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_but_valid_request_is_accepted(server: Server, name: str) -> None:
    assert len(fill(GOOD)) == 66

    response = exchange(server.port, fill(UNUSUAL[name]))

    assert response.status == 202, response


def test_http_1_0_is_one_request_per_connection(server: Server) -> None:
    with Wire(server.port) as wire:
        response = wire.send(request().replace(b"HTTP/1.1", b"HTTP/1.0")).read()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert wire.is_closed()


def test_connect_is_refused(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.send(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
        assert_problem(wire.read(), 405, connection="close")


def fill(template: bytes) -> bytes:
    return template.replace(b"%(key)s", new_key().encode())


def test_a_trailer_never_becomes_a_header(server: Server) -> None:  # F52
    trailers = b"Idempotency-Key: other\r\nX-Request-ID: sneaked\r\nContent-Encoding: gzip\r\n"
    data = chunks_as(b"42\r\n" + GOOD + b"\r\n0\r\n" + trailers + b"\r\n")

    response = exchange(server.port, fill(data))
    assert response.status in (200, 202)
    assert response.headers["x-request-id"] != "sneaked"
