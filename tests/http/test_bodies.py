"""Bodies that are not an event, and odd bodies that are one (F41).

Each is sent three ways: alone, in several chunks, and as a line of a batch between two valid lines.
The result must be the same, and the lines around it must be accepted.
"""

import pytest

from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import chunked, exchange, request
from support.servers.server import Server

KEY = b'"idempotency_key":"%(key)s"'

BAD_PAYLOADS = {
    "nothing": b"",
    "a space": b" ",
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "-Infinity": b"-Infinity",
    "an undefined": b"undefined",
    "a leading zero": b"01",
    "a leading plus": b"+1",
    "a bare minus": b"-",
    "no digit before the point": b".5",
    "no digit after the point": b"1.",
    "no exponent": b"1e",
    "hexadecimal": b"0x10",
    "an underscore in a number": b"1_000",
    "a cut literal": b"tru",
    "a literal in capitals": b"True",
    "single quotes": b"'a'",
    "no end of string": b'"a',
    "a raw control character": b'"a\x01b"',
    "a raw newline": b'"a\rb"',
    "a raw NUL": b'"\x00"',
    "an unknown escape": b'"\\x41"',
    "a short escape": b'"\\u12"',
    "an escape without hex": b'"\\u12G4"',
    "a trailing comma": b"[1,]",
    "a missing comma": b"[1 2]",
    "no end of array": b"[1",
    "the wrong bracket": b"[1}",
    "a key without quotes": b"{a:1}",
    "a key without a value": b'{"a"}',
    "a comment": b"/* c */ 1",
    "two values": b"1 2",
    "an escaped high surrogate": b'"\\ud800"',
    "an escaped high surrogate in a long text": b'"\\ud800 and then some more text"',
    "an escaped low surrogate": b'"\\udc00"',
    "a pair in the wrong order": b'"\\udc00\\ud800"',
    "two high surrogates": b'"\\ud800\\ud800\\udc00"',
    "a high surrogate and a letter": b'"\\ud83d\\u0041"',
    "a surrogate as a key": b'{"\\udfff":1}',
    "a surrogate deep inside": b'[[{"a":["\\ud800"]}]]',
    "raw CESU-8": b'"\xed\xa0\xbd\xed\xb8\x80"',
    "a raw lone surrogate": b'"\xed\xa0\x80"',
    "a cut UTF-8 sequence": b'"\xc3"',
    "Latin-1": b'"caf\xe9"',
    "an overlong UTF-8 sequence": b'"\xc0\xaf"',
    "UTF-8 past the last character": b'"\xf4\x90\x80\x80"',
    "a byte order mark inside": b"\xef\xbb\xbf1",
    "a no-break space": b"\xc2\xa01",
    "513 levels of arrays": b"[" * 513 + b"]" * 513,
    "513 levels of objects": b'{"a":' * 513 + b"1" + b"}" * 513,
    "513 levels behind a string of brackets": b'["]]]]]",' * 513 + b"1" + b"]" * 513,
    "100 000 levels": b"[" * 100_000 + b"]" * 100_000,
    "100 000 open brackets": b"[" * 100_000,
}

GOOD_PAYLOADS = {
    "null": b"null",
    "false": b"false",
    "zero": b"-0",
    "an exponent": b"1E+5",
    "a text": b'"a"',
    "an empty object": b"{}",
    "spaces inside": b'{ "a" :\t[ 1 ,\r2 ] }',
    "\\u0000": b'"\\u0000"',
    "an escaped pair": b'"\\ud83d\\ude00"',
    "the last pair": b'"\\udbff\\udfff"',
    "an escaped backslash before ud800": b'"\\\\ud800"',
    "raw text outside the BMP": '"😀"'.encode(),
    "a raw DEL": b'"\x7f"',
    "U+2028": '"\u2028"'.encode(),
    "a byte order mark in a text": b'"\xef\xbb\xbf"',
    "U+FFFF": b'"\xef\xbf\xbf"',
    "duplicate keys": b'{"a":1,"a":2}',
    "an integer of 100 000 digits": b"9" * 100_000,
    "a fraction of 100 000 digits": b"0." + b"1" * 100_000,
    "a huge exponent": b"1e999999999",
    "512 levels of arrays": b"[" * 512 + b"]" * 512,
    "512 levels of objects": b'{"a":' * 512 + b"1" + b"}" * 512,
    "512 levels and many brackets in strings": b"[" * 512 + b'"[[[[[[\\"[[[[{{{"' + b"]" * 512,
    "many brackets side by side": b"[" + b"[]," * 5000 + b"{}]",
}

BAD_BODIES = {
    "an empty body": b"",
    "an object without anything": b"{}",
    "no payload": b"{%s}" % KEY,
    "a scalar": b"1",
    "a text": b'"a"',
    "null": b"null",
    "an array": b'[{"payload":1,%s}]' % KEY,
    "a byte order mark": b'\xef\xbb\xbf{"payload":1,%s}' % KEY,
    "UTF-16": '{"payload":1,"idempotency_key":"%(key)s"}'.encode("utf-16"),
    "UTF-16 without a mark": '{"payload":1,"idempotency_key":"%(key)s"}'.encode("utf-16-be"),
    "UTF-32": '{"payload":1}'.encode("utf-32"),
    "a form": b"payload=1&idempotency_key=%(key)s",
    "XML": b"<payload/>",
    "text after the object": b'{"payload":1,%s}x' % KEY,
    "a NUL after the object": b'{"payload":1,%s}\x00' % KEY,
    "a second object": b'{"payload":1,%s}{"payload":1,%s}' % (KEY, KEY),
    "a form feed": b'{"payload":1,\x0c%s}' % KEY,
    "an unknown field": b'{"payload":1,"extra":1,%s}' % KEY,
    "a field in capitals": b'{"Payload":1,%s}' % KEY,
    "a surrogate in a field name": b'{"payload":1,"\\ud800":1,%s}' % KEY,
    "no key": b'{"payload":1}',
    "null as key": b'{"payload":1,"idempotency_key":null}',
    "a surrogate in the key": b'{"payload":1,"idempotency_key":"\\udc00%(key)s"}',
}


def field(name: str, value: bytes) -> bytes:
    key = b"" if name == "idempotency_key" else b"," + KEY
    return b'{"payload":1,"%s":%s%s}' % (name.encode(), value, key)


BAD_FIELDS = [
    *((name, value) for name in ("idempotency_key", "event_type", "lane") for value in (
        b"1", b"1.5", b"true", b"[]", b"{}", b'["a"]', b'""',
        b'"' + b"x" * 256 + b'"', '"{}"'.format("😀" * 256).encode(),
        b'"\\u0000"', b'"a\\u0000b"', b'"\\n"', b'"\\t"', b'"\\u001f"', b'"\\u007f"', b'"\\u0085"',
        b'"\\u009f"', b'"\xc2\x80"', b'"\\ud800"', b'"\\udc00"',
    )),
    ("event_type", b"null"),
    *(("source_sequence", value) for value in (
        b"1.5", b"1.0", b"1e3", b'"1"', b"true", b"[]", b"{}", b"9223372036854775808",
        b"-9223372036854775809", b"18446744073709551615", b"9" * 100_000, b"-" + b"9" * 5000,
    )),
    *(("source_emitted_at", value) for value in (
        b"1", b"1769860800", b"true", b"[]", b'""', b'"now"', b'"2026-01-31"',
        b'"2026-01-31T12:00:00"', b'"2026-01-31T12:00Z"', b'"0000-01-01T00:00:00Z"',
        b'"10000-01-01T00:00:00Z"', b'"0001-01-01T00:00:00+00:01"',
        b'"9999-12-31T23:59:59-00:01"', b'"9999-12-31T23:59:59.9999999Z"',
        b'"2026-02-30T00:00:00Z"', b'"2026-01-31T24:00:00Z"', b'"2026-01-31T12:00:00+24:00"',
        b'"2026-01-31T12:00:00.Z"', b'"20260131T120000Z"', b'"2026-01-31T12:00:00Z\\u0000"',
    )),
]  # fmt: skip

GOOD_FIELDS = [
    *((name, value) for name in ("idempotency_key", "event_type", "lane") for value in (
        b'"x"', b'"' + b"x" * 255 + b'"', '"{}"'.format("😀" * 255).encode(), b'" "',
        b'"\xc2\xa0"', b'"\\ud83d\\ude00"', b'"\\"\\\\\\/"', b'"<img onerror=alert(1)>"',
    )),
    ("lane", b"null"),
    *(("source_sequence", value) for value in (
        b"0", b"-0", b"9223372036854775807", b"-9223372036854775808", b"null",
    )),
    *(("source_emitted_at", value) for value in (
        b'"2026-01-31T12:00:00Z"', b'"2026-01-31t12:00:00.123456789+05:30"', b"null",
        b'"0001-01-01T00:00:00Z"', b'"9999-12-31T23:59:59.999999Z"',
    )),
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_is_not_an_event_is_400(server: Server, name: str) -> None:
    assert_refused(server, BAD_BODIES[name])


@pytest.mark.parametrize("name", BAD_PAYLOADS)
def test_a_payload_that_is_not_json_is_400(server: Server, name: str) -> None:
    assert_refused(server, b'{"payload":%s,%s}' % (BAD_PAYLOADS[name], KEY))


@pytest.mark.parametrize(("name", "value"), BAD_FIELDS, ids=str)
def test_a_field_out_of_bounds_is_400_and_named(server: Server, name: str, value: bytes) -> None:
    detail = assert_refused(server, field(name, value))

    assert name in detail or "surrogate" in detail or "JSON" in detail


@pytest.mark.parametrize("name", GOOD_PAYLOADS)
def test_a_payload_is_stored_byte_for_byte(server: Server, name: str) -> None:
    payload = GOOD_PAYLOADS[name]
    for data in each_way(b'{"payload": %s ,%s}' % (payload, KEY)):
        response = exchange(server.port, data)
        assert response.status == 202, response
        assert server.payload(response.json()["id"]) == payload


@pytest.mark.parametrize(("name", "value"), GOOD_FIELDS, ids=str)
def test_a_field_within_bounds_is_accepted(server: Server, name: str, value: bytes) -> None:
    response = server.post(fill(field(name, value)))

    assert response.status in ((202,) if name != "idempotency_key" else (202, 200)), response


def test_the_last_of_two_equal_fields_counts(server: Server) -> None:
    response = server.post(fill(b'{"payload":1,"payload":2,%s}' % KEY))

    assert response.status == 202
    assert server.payload(response.json()["id"]) == b"2"


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Idempotency-Key": "%(key)s"}, b'{"payload":1}', 202),
        ({"Idempotency-Key": "%(key)s"}, b'{"payload":1,"idempotency_key":null}', 202),
        ({"Idempotency-Key": "%(key)s"}, b'{"payload":1,%s}' % KEY, 202),
        ({"Idempotency-Key": "%(key)sключ"}, b'{"payload":1}', 202),
        ({"Idempotency-Key": "  %(key)s\t"}, b'{"payload":1,%s}' % KEY, 202),
        ({"Idempotency-Key": "%(key)s\r\nIdempotency-Key: %(key)s"}, b'{"payload":1}', 202),
        ({"Idempotency-Key": "%(key)s\r\nidempotency-key: b"}, b'{"payload":1}', 400),
        ({"Idempotency-Key": "%(key)sX"}, b'{"payload":1,%s}' % KEY, 400),
        ({"Idempotency-Key": ""}, b'{"payload":1,%s}' % KEY, 400),
        ({"Idempotency-Key": ""}, b'{"payload":1}', 400),
        ({"Idempotency-Key": "x" * 256}, b'{"payload":1}', 400),
        ({"Idempotency-Key": "a\tb"}, b'{"payload":1}', 400),
        ({"Idempotency-Key": "\x80"}, b'{"payload":1}', 400),
        ({"Idempotency-Key": "%(key)s"}, b'{"payload":1,"idempotency_key":1}', 400),
    ],
)
def test_the_key_may_be_a_header_but_must_agree_with_the_body(
    server: Server, headers: dict[str, str], body: bytes, status: int
) -> None:
    key = new_key()
    filled = {name: value.replace("%(key)s", key) for name, value in headers.items()}

    response = server.post(body.replace(b"%(key)s", key.encode()), filled)

    assert response.status == status, response
    if status == 400:
        assert_problem(response, 400)
    else:
        assert response.json()["idempotency_key"].startswith(key)


def test_a_header_key_that_is_not_utf8_is_400(server: Server) -> None:
    data = request("POST", "/webhooks", b'{"payload":1}', {"Idempotency-Key": "@@"})

    assert "UTF-8" in assert_problem(exchange(server.port, data.replace(b"@@", b"\xff\xfe")), 400)


def assert_refused(server: Server, template: bytes) -> str:
    details = {assert_problem(exchange(server.port, data), 400) for data in each_way(template)}
    if b"\n" not in template and template:
        details.add(assert_line_refused(server, fill(template)))
    assert len(details) == 1
    return details.pop()


def assert_line_refused(server: Server, line: bytes) -> str:
    body = b"\n".join([posted(), line, posted()])

    before, problem, after = exchange(server.port, request("POST", "/webhooks/batch", body)).lines()

    assert (before["http_status"], after["http_status"]) == (202, 202)
    assert problem["status"] == 400
    detail: str = problem["detail"]
    return detail


def each_way(template: bytes) -> list[bytes]:
    whole, pieces = fill(template), fill(template)
    third = len(pieces) // 3 + 1
    parts = [pieces[start : start + third] for start in range(0, len(pieces), third)]
    return [request("POST", "/webhooks", whole), chunked("POST", "/webhooks", parts)]


def fill(template: bytes) -> bytes:
    return template.replace(b"%(key)s", new_key().encode())
