"""RFC 9112 (HTTP/1.1): which requests are accepted, which are refused, and whether the connection
stays open.

The cases are our own, one for each rule that a request can keep or break. Deviations that remain
are cases too: `docs/reference/http-conformance.md` lists each of them under the same name.
"""

import pytest

from docs.pages import REFERENCE, rows, sections
from support.http.posting import posted
from support.http.problems import assert_problem
from support.http.wire import Disconnected, Wire, request
from support.servers.server import Server

pytestmark = pytest.mark.usefixtures("neighbour")

Case = tuple[bytes, int]
"""The bytes, and the status of the response. After a status of `REFUSED` the connection ends."""

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /webhooks HTTP/1.1\r\nHost: localhost\r\n"
EVENT = posted("rfc9112")
LENGTH = b"Content-Length: %d\r\n" % len(EVENT)
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
ACCEPTED, NO_ROUTE = 202, 404
EXPECTED = {ACCEPTED: {200, 202}, NO_ROUTE: {401, 404}}
"""The event may be a duplicate, and a caller without a token gets 401 instead of 404."""
REFUSED = {400, 405, 501}


def line(first: bytes, *headers: bytes) -> bytes:
    """Return a request without a body: its first line, `Host` and further headers."""
    return b"\r\n".join([first, b"Host: localhost", *headers, b"", b""])


def host(value: bytes, version: bytes = b"1.1") -> bytes:
    return b"GET /health HTTP/%s\r\nHost:%s\r\n\r\n" % (version, value)


def coded(coding: bytes, version: bytes = b"1.1") -> bytes:
    head = POST.replace(b"1.1", version) + b"Transfer-Encoding: %s\r\n\r\n" % coding
    return head + CHUNK + b"0\r\n\r\n"


REQUEST_LINES: dict[str, Case] = {
    "origin form": (line(b"GET /health HTTP/1.1"), 200),
    "origin form with a query": (line(b"GET /health?a=b?c/d HTTP/1.1"), 200),
    "origin form with two slashes": (line(b"GET //health HTTP/1.1"), NO_ROUTE),
    "absolute form": (line(b"GET http://localhost/health HTTP/1.1"), 200),
    "absolute form with a port": (line(b"GET http://localhost:8000/health HTTP/1.1"), 200),
    "absolute form with an address": (line(b"GET http://[::1]:8000/health HTTP/1.1"), 200),
    "absolute form of https": (line(b"GET https://localhost/health HTTP/1.1"), 200),
    "absolute form in capitals": (line(b"GET HTTP://LOCALHOST/health HTTP/1.1"), 200),
    "absolute form with an underscore": (line(b"GET http://a_b/health HTTP/1.1"), 200),
    "absolute form with an empty port": (line(b"GET http://localhost:/health HTTP/1.1"), 200),
    "absolute form without a host": (line(b"GET http:///health HTTP/1.1"), 400),
    "absolute form with a user": (line(b"GET http://a:b@localhost/health HTTP/1.1"), 400),
    "absolute form with a bad host": (line(b"GET http://[::1/health HTTP/1.1"), 400),
    "absolute form with a bad port": (line(b"GET http://localhost:8o/health HTTP/1.1"), 400),
    "absolute form of another scheme": (line(b"GET ftp://localhost/health HTTP/1.1"), 400),
    "absolute form without Host": (b"GET http://localhost/health HTTP/1.1\r\n\r\n", 400),
    "asterisk form of GET": (line(b"GET * HTTP/1.1"), 400),
    "authority form of GET": (line(b"GET localhost:8000 HTTP/1.1"), 400),
    "authority form of CONNECT": (line(b"CONNECT localhost:8000 HTTP/1.1"), 405),
    "a fragment": (line(b"GET /health#part HTTP/1.1"), 400),
    "a version in lower case": (line(b"GET /health http/1.1"), 400),
    "a version of three digits": (line(b"GET /health HTTP/1.10"), 400),
    "something behind the version": (line(b"GET /health HTTP/1.1 x"), 400),
    "a line ended by LF": (HEALTH.replace(b"1.1\r\n", b"1.1\n") + b"\r\n", 400),
    "a line ended by CR": (HEALTH.replace(b"1.1\r\n", b"1.1\r") + b"\r\n", 400),
    "a CR in the target": (line(b"GET /hea\rlth HTTP/1.1"), 400),
    "an empty line first": (b"\r\n" + HEALTH + b"\r\n", 200),
    "white space before the line": (b" " + HEALTH + b"\r\n", 400),
    "white space behind the line": (HEALTH.replace(b"Host", b" Host") + b"\r\n", 400),
}
HOSTS: dict[str, Case] = {
    "a name": (host(b" inbox.example.com"), 200),
    "a name and a port": (host(b" inbox.example.com:8000"), 200),
    "a name and an empty port": (host(b" inbox.example.com:"), 200),
    "a name with escapes": (host(b" in%2Dbox"), 200),
    "a name with every mark": (host(b" a-b.c_d~e!$&'()*+,;=f"), 200),
    "an address": (host(b" 127.0.0.1:80"), 200),
    "an address of IPv6": (host(b" [2001:db8::1]:80"), 200),
    "white space around it": (host(b" \t localhost \t "), 200),
    "an empty value": (host(b""), 200),
    "none": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "none in HTTP/1.0": (b"GET /health HTTP/1.0\r\n\r\n", 200),
    "two": (line(b"GET /health HTTP/1.1", b"Host: example.com"), 400),
    "two that are equal": (line(b"GET /health HTTP/1.1", b"Host: localhost"), 400),
    "two in HTTP/1.0": (line(b"GET /health HTTP/1.0", b"Host: example.com"), 400),
    "two in one line": (host(b" localhost, example.com"), 400),
    "a user": (host(b" a@localhost"), 400),
    "a path": (host(b" localhost/health"), 400),
    "a URL": (host(b" http://localhost"), 400),
    "a space": (host(b" local host"), 400),
    "a bad escape": (host(b" local%zzhost"), 400),
    "a bad port": (host(b" localhost:8o"), 400),
    "a port past 65535": (host(b" localhost:65536"), 400),
    "two ports": (host(b" localhost:80:80"), 400),
    "an address of IPv6 without brackets": (host(b" ::1"), 400),
    "an address of IPv6 without its end": (host(b" [::1"), 400),
    "an address of IPv6 that is none": (host(b" [1::2::3]"), 400),
    "raw UTF-8": (host(" föö".encode()), 400),
    "malformed in HTTP/1.0": (host(b" local host", b"1.0"), 400),
}
FRAMING: dict[str, Case] = {
    "a length": (POST + LENGTH + b"\r\n" + EVENT, ACCEPTED),
    "chunks": (CHUNKED + CHUNK + b"0\r\n\r\n", ACCEPTED),
    "chunked in capitals": (coded(b"Chunked"), ACCEPTED),
    "white space around chunked": (coded(b" \t chunked "), ACCEPTED),
    "length and chunks": (POST + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n", 400),
    "two lengths in a line": (POST + b"Content-Length: 3, 3\r\n\r\n{ }", 400),
    "two lengths": (POST + LENGTH + b"Content-Length: 1\r\n\r\n", 400),
    "a length with a sign": (POST + b"Content-Length: +3\r\n\r\n{ }", 400),
    "a length with a space inside": (POST + b"Content-Length: 3 3\r\n\r\n{ }", 400),
    "a length that is no number": (POST + b"Content-Length: three\r\n\r\n{ }", 400),
    "another coding before chunked": (coded(b"gzip, chunked"), 501),
    "other codings before chunked": (coded(b"gzip, deflate ,chunked"), 501),
    "another coding in a line before": (coded(b"gzip\r\nTransfer-Encoding: chunked"), 501),
    "identity before chunked": (coded(b"identity, chunked"), 501),
    "another coding alone": (coded(b"gzip"), 400),
    "another coding behind chunked": (coded(b"chunked, gzip"), 400),
    "chunked twice": (coded(b"chunked, chunked"), 400),
    "chunked in two lines": (coded(b"chunked\r\nTransfer-Encoding: chunked"), 400),
    "chunked behind a comma": (coded(b", chunked"), 400),
    "chunked with a parameter": (coded(b"chunked;a=b"), 400),
    "chunked behind a vertical tab": (coded(b"\x0bchunked"), 400),
    "chunked in quotes": (coded(b'"chunked"'), 400),
    "an empty coding": (coded(b""), 400),
    "chunked in HTTP/1.0": (coded(b"chunked", b"1.0"), 400),
    "another coding in HTTP/1.0": (coded(b"gzip, chunked", b"1.0"), 400),
}
CHUNKS: dict[str, Case] = {
    "a size in capitals": (CHUNKED + CHUNK.upper()[:2] + CHUNK[2:] + b"0\r\n\r\n", ACCEPTED),
    "a size with zeros": (CHUNKED + b"000" + CHUNK + b"000\r\n\r\n", ACCEPTED),
    "an extension": (CHUNKED + CHUNK.replace(b"\r\n", b";a=b\r\n", 1) + b"0;c\r\n\r\n", ACCEPTED),
    "an extension in quotes": (
        CHUNKED + CHUNK.replace(b"\r\n", b';a="b;\\"c"\r\n', 1) + b"0\r\n\r\n",
        ACCEPTED,
    ),
    "an extension with a CR": (CHUNKED + CHUNK.replace(b"\r\n", b";a=\rb\r\n", 1), 400),
    "an extension with an LF": (CHUNKED + CHUNK.replace(b"\r\n", b";a=\nb\r\n", 1), 400),
    "no size": (CHUNKED + b";a=b\r\n{}\r\n0\r\n\r\n", 400),
    "a size with a prefix": (CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n", 400),
    "a size with a sign": (CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n", 400),
    "a size past 64 bits": (CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n", 400),
    "a size ended by LF": (CHUNKED + b"2\n{}\r\n0\r\n\r\n", 400),
    "a chunk ended by LF": (CHUNKED + b"2\r\n{}\n0\r\n\r\n", 400),
    "a chunk that is longer": (CHUNKED + b"2\r\n{} \r\n0\r\n\r\n", 400),
    "a chunk without its end": (CHUNKED + b"2\r\n{}0\r\n\r\n", 400),
}
TRAILERS: dict[str, Case] = {
    "one": (CHUNKED + CHUNK + b"0\r\nX-Checksum: 1\r\n\r\n", ACCEPTED),
    "one that is no header": (CHUNKED + CHUNK + b"0\r\nHost: a b\r\n\r\n", ACCEPTED),
    "a folded one": (CHUNKED + CHUNK + b"0\r\nX: a\r\n b\r\n\r\n", 400),
    "one without a colon": (CHUNKED + CHUNK + b"0\r\nX\r\n\r\n", 400),
    "one with a bare CR": (CHUNKED + CHUNK + b"0\r\nX: a\rb\r\n\r\n", 400),
    "a length": (CHUNKED + CHUNK + b"0\r\nContent-Length: 3\r\n\r\n", 400),
    "a coding": (CHUNKED + CHUNK + b"0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
}
FIELDS: dict[str, Case] = {
    "no white space": (HEALTH + b"X:a\r\n\r\n", 200),
    "white space around it": (HEALTH + b"X: \t a \t \r\n\r\n", 200),
    "an empty value": (HEALTH + b"X:\r\n\r\n", 200),
    "obsolete text": (HEALTH + b"X: \xe4\xff\r\n\r\n", 200),
    "every mark in a name": (HEALTH + b"!#$%&'*+-.^_`|~9: a\r\n\r\n", 200),
    "a folded line": (HEALTH + b"X: a\r\n b\r\n\r\n", 400),
    "a folded line with a tab": (HEALTH + b"X: a\r\n\tb\r\n\r\n", 400),
    "an empty folded line": (HEALTH + b"X: a\r\n \r\n\r\n", 400),
    "white space before the colon": (HEALTH + b"X : a\r\n\r\n", 400),
    "no colon": (HEALTH + b"X\r\n\r\n", 400),
    "no name": (HEALTH + b": a\r\n\r\n", 400),
    "a bracket in the name": (HEALTH + b"X[]: a\r\n\r\n", 400),
    "a bare CR": (HEALTH + b"X: a\rb\r\n\r\n", 400),
    "a bare LF": (HEALTH + b"X: a\nY: b\r\n\r\n", 400),
    "a NUL": (HEALTH + b"X: a\x00\r\n\r\n", 400),
    "a line ended by CR CR LF": (HEALTH + b"X: a\r\r\n\r\n", 400),
}
DEVIATIONS: dict[str, Case] = {
    "an unknown method": (line(b"BREW /health HTTP/1.1"), 400),
    "two spaces in the request line": (line(b"GET  /health HTTP/1.1"), 200),
    "`OPTIONS *`": (line(b"OPTIONS * HTTP/1.1"), NO_ROUTE),
    "`Host` with an IPvFuture address": (host(b" [v1.a]"), 400),
    "`Content-Length` given twice with the same value": (
        POST + LENGTH + LENGTH + b"\r\n" + EVENT,
        400,
    ),
    "a tab behind `chunked`": (coded(b"chunked\t"), 400),
    "white space around a chunk's size or extension": (CHUNKED + b"2 ;a\r\n{}\r\n0\r\n\r\n", 400),
}
CASES: dict[str, Case] = {
    f"{group}: {name}": case
    for group, cases in {
        "request line": REQUEST_LINES,
        "host": HOSTS,
        "framing": FRAMING,
        "chunks": CHUNKS,
        "trailers": TRAILERS,
        "field": FIELDS,
        "deviation": DEVIATIONS,
    }.items()
    for name, case in cases.items()
}


# C5, C10, S17
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", [1 << 20, 1], ids=["whole", "byte by byte"])
def test_a_request_is_accepted_or_refused_as_the_rfc_says(
    server: Server, name: str, step: int
) -> None:
    data, status = CASES[name]
    with Wire(server.port) as wire:
        for start in range(0, len(data), step):
            wire.send_ignoring_close(data[start : start + step])
        response = wire.read()
        assert response.status in EXPECTED.get(status, {status}), response
        if status in REFUSED:
            assert_problem(response, status, connection="close")
            with pytest.raises(Disconnected):
                wire.read()


@pytest.mark.parametrize("name", CASES)
def test_only_a_refusal_ends_a_pipeline_after_the_requests_before_it(
    server: Server, name: str
) -> None:
    data, status = CASES[name]
    with Wire(server.port) as wire:
        wire.send_ignoring_close(request() + data + request())
        assert wire.read().status == 200
        assert wire.read().status in EXPECTED.get(status, {status})
        if status in REFUSED or b"HTTP/1.0" in data:
            with pytest.raises(Disconnected):
                wire.read()
        else:
            assert wire.read().status == 200


def test_every_deviation_is_listed_with_its_reason() -> None:
    listed = sections(REFERENCE / "http-conformance.md")["HTTP/1.1 (RFC 9112)"]
    _, _, *deviations = rows(listed)
    assert [row[0] for row in deviations] == list(DEVIATIONS)
    assert all(all(row) for row in deviations)
