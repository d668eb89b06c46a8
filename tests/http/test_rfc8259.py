"""RFC 8259 (JSON): valid documents are accepted and stored byte for byte; all others are refused.

The cases are our own, by the classes of the RFC. Each is sent as a payload on both routes. Choices
that the RFC leaves open, and documents that it allows and ackbox refuses, are cases too:
`docs/reference/http-conformance.md` lists each of them under the same name.
"""

from typing import Any

import pytest

from docs.pages import REFERENCE, rows, sections
from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import exchange, request
from support.servers.server import Server

pytestmark = pytest.mark.usefixtures("neighbour")


def cases(by_class: dict[str, dict[str, bytes]], choices: dict[str, bytes]) -> dict[str, bytes]:
    named = {f"{kind}: {name}": text for kind, of in by_class.items() for name, text in of.items()}
    return named | choices


VALID: dict[str, dict[str, bytes]] = {
    "scalars": {
        "the three literals": b"[true,false,null]",
        "a number alone": b"42",
        "a string alone": b'"a"',
        "a literal alone": b"null",
    },
    "structure": {
        "an empty array": b"[]",
        "an empty object": b"{}",
        "an array of all kinds": b'[1,"a",null,true,[],{}]',
        "an object in an object": b'{"a":{"b":{"c":[]}}}',
        "an empty name": b'{"":0}',
        "a name with escapes": b'{"\\u0061\\"\\\\":0}',
        "a name of another script": '{"ключ":"值"}'.encode(),
    },
    "white space": {
        "white space between all tokens": b' \t\r{ \t"a"\r:\t[ 1 ,\t2\r] , "b" : { } } ',
        "line feeds between tokens": b'\n{\n"a"\n:\n[\n1\n,\n2\n]\n}\n',
    },
    "numbers": {
        "zero": b"0",
        "minus zero": b"-0",
        "minus zero with a fraction": b"-0.0",
        "a negative integer": b"-1",
        "an integer past 64 bits": b"123456789012345678901234567890",
        "a fraction": b"3.14159",
        "zero with an exponent": b"0e1",
        "an exponent": b"1e5",
        "a capital exponent": b"1E5",
        "an exponent with a plus": b"1e+5",
        "an exponent with a minus": b"1E-5",
        "an exponent with leading zeros": b"1e007",
        "a fraction with an exponent": b"-12.5e-3",
        "a fraction of many digits": b"0." + b"3" * 400,
        "a fraction that ends in zeros": b"1.500000",
    },
    "strings": {
        "an empty string": b'""',
        "every short escape": b'"\\"\\\\\\/\\b\\f\\n\\r\\t"',
        "an escape by its code": b'"\\u0041\\u00e9\\u20AC"',
        "hexadecimal digits in both cases": b'"\\uaBcD"',
        "an escaped NUL": b'"\\u0000"',
        "an escaped control character": b'"\\u001f"',
        "a noncharacter, escaped": b'"\\uffff\\ufdd0"',
        "an escaped pair of surrogates": b'"\\ud834\\udd1e"',
        "two escaped pairs": b'"\\ud834\\udd1e\\uDBFF\\uDFFF"',
        "a backslash before what looks like an escape": b'"\\\\u0000\\\\"',
        "a slash": b'"a/b"',
        "a delete character": b'"\x7f"',
        "brackets and commas": b'"[{,:}]"',
        "what looks like a comment": b'"/* a */ // b"',
    },
    "encoding": {
        "two, three and four bytes": '"é€𝄞"'.encode(),
        "the last character": b'"\xf4\x8f\xbf\xbf"',
        "a noncharacter": b'"\xef\xbf\xbf"',
        "line and paragraph separators": b'"\xe2\x80\xa8\xe2\x80\xa9"',
        "a byte order mark in a string": b'"\xef\xbb\xbf"',
        "a combining character alone": b'"\xcc\x81"',
    },
    "depth": {
        "512 levels": b"[" * 512 + b"]" * 512,
        "512 levels of objects": b'{"a":' * 512 + b"0" + b"}" * 512,
    },
}

INVALID: dict[str, dict[str, bytes]] = {
    "scalars": {
        "nothing": b"",
        "a literal in capitals": b"TRUE",
        "a literal cut short": b"nul",
        "a literal with more": b"nulls",
        "a bare word": b"a",
        "undefined": b"undefined",
    },
    "structure": {
        "an array without an end": b"[1",
        "an array closed twice": b"[1]]",
        "an array closed by a brace": b"[1}",
        "a comma at the end": b"[1,]",
        "a comma at the start": b"[,1]",
        "two commas": b"[1,,2]",
        "only a comma": b"[,]",
        "no comma": b"[1 2]",
        "a colon in an array": b'["a":1]',
        "an object without an end": b'{"a":1',
        "an object closed by a bracket": b'{"a":1]',
        "a comma at the end of an object": b'{"a":1,}',
        "two commas in an object": b'{"a":1,,"b":2}',
        "a name without a value": b'{"a":}',
        "a name without a colon": b'{"a" 1}',
        "two colons": b'{"a"::1}',
        "a comma for a colon": b'{"a",1}',
        "a name without quotes": b"{a:1}",
        "a name in single quotes": b"{'a':1}",
        "a number as a name": b"{1:1}",
        "null as a name": b"{null:1}",
        "two values": b"1 2",
        "a comment": b"[1/* a */]",
        "a comment to the end": b"[1]//",
        "a hash comment": b"[1]#",
    },
    "white space": {
        "a form feed": b"[\x0c1]",
        "a vertical tab": b"[\x0b1]",
        "a no-break space": b"[\xc2\xa01]",
        "a wide space": b"[\xe3\x80\x801]",
        "a word joiner": b"[\xe2\x81\xa01]",
        "a line separator": b"[\xe2\x80\xa81]",
        "an escape outside a string": b"[\\n1]",
        "a NUL": b"[1]\x00",
    },
    "numbers": {
        "a plus": b"+1",
        "a minus alone": b"-",
        "a minus and a space": b"- 1",
        "two minuses": b"--1",
        "a leading zero": b"01",
        "a leading zero after a minus": b"-01",
        "two zeros": b"00",
        "a point without digits before it": b".5",
        "a minus and a point": b"-.5",
        "a point without digits behind it": b"1.",
        "a point before an exponent": b"1.e5",
        "two points": b"1.2.3",
        "an exponent without digits": b"1e",
        "an exponent with a sign alone": b"1e+",
        "two exponents": b"1e2e3",
        "a fraction in an exponent": b"1e2.5",
        "hexadecimal": b"0x1F",
        "octal": b"0o17",
        "a letter behind a number": b"1a",
        "an underscore": b"1_000",
        "a thousands separator": b"[1'000]",
        "NaN": b"NaN",
        "Infinity": b"Infinity",
        "minus Infinity": b"-Infinity",
        "a digit of another script": b"[\xef\xbc\x91]",
    },
    "strings": {
        "a string without an end": b'"a',
        "a string ended by an escape": b'"\\"',
        "a quote alone": b'"',
        "single quotes": b"'a'",
        "typographic quotes": "“a”".encode(),
        "a tab in a string": b'"\t"',
        "a carriage return in a string": b'"\r"',
        "a line feed in a string": b'"\n"',
        "a NUL in a string": b'"\x00"',
        "the last control character in a string": b'"\x1f"',
    },
    "escapes": {
        "a backslash at the end": b'"\\',
        "an unknown escape": b'"\\a"',
        "an escaped quote of the other kind": b'"\\\'"',
        "a hexadecimal escape": b'"\\x41"',
        "an octal escape": b'"\\101"',
        "a capital escape": b'"\\U0041"',
        "an escape in braces": b'"\\u{41}"',
        "an escape of three digits": b'"\\u041"',
        "an escape with a letter": b'"\\u00G0"',
        "an escape with a sign": b'"\\u+041"',
        "an escaped line end": b'"\\\r"',
        "an escaped character of two bytes": '"\\é"'.encode(),
    },
    "encoding": {
        "a byte that starts nothing": b'"\x80"',
        "a byte that is never used": b'"\xff"',
        "a sequence cut by the end": b'"\xe2\x82"',
        "a sequence cut by a letter": b'"\xe2\x82a"',
        "an overlong slash": b'"\xc0\xaf"',
        "an overlong NUL": b'"\xc0\x80"',
        "an overlong sequence of three": b'"\xe0\x80\xaf"',
        "a raw surrogate": b'"\xed\xa0\x80"',
        "a raw pair of surrogates": b'"\xed\xa0\xb4\xed\xb4\x9e"',
        "past the last character": b'"\xf4\x90\x80\x80"',
        "a sequence of five bytes": b'"\xf8\x88\x80\x80\x80"',
        "Latin-1": b'"\xe9"',
        "bad UTF-8 outside a string": b"[\xe9]",
        "a byte order mark before the value": b"\xef\xbb\xbf1",
    },
}

REFUSED_BY_CHOICE: dict[str, bytes] = {
    "an escaped lone surrogate": b'"\\ud800"',
    "more than 512 levels": b"[" * 513 + b"]" * 513,
}
TAKEN_BY_CHOICE: dict[str, bytes] = {
    "a name given twice in `payload`": b'{"a":1,"a":2}',
    "a number past a double": b"[1.5e+9999,-1e400,1e-9999]",
}
OF_THE_BODY: dict[str, tuple[bytes, int]] = {
    "a field given twice": (b'{"idempotency_key":"%s","payload":1,"payload":2}', 202),
    "a body that is no object": (b'["%s"]', 400),
    "a byte order mark": (b'\xef\xbb\xbf{"idempotency_key":"%s","payload":1}', 400),
}
DEVIATIONS = [*REFUSED_BY_CHOICE, *TAKEN_BY_CHOICE, *OF_THE_BODY]
ACCEPTED = cases(VALID, TAKEN_BY_CHOICE)
REFUSED = cases(INVALID, REFUSED_BY_CHOICE)
OTHER_SPELLINGS = {  # of a lone surrogate
    "low": b'"\\udc00"',
    "the wrong way round": b'"\\udd1e\\ud834"',
    "high and then a letter": b'"\\ud834a"',
    "high and then another escape": b'"\\ud834\\n"',
    "two high ones": b'"\\ud834\\ud834\\udd1e"',
    "as a name": b'{"\\udfff":0}',
}


def event(payload: bytes, around: bytes = b"") -> bytes:
    """Return the body of a new event with this payload and white space around it."""
    key = new_key().encode()
    return b'{"idempotency_key":"%s","payload":%s%s%s}' % (key, around, payload, around)


@pytest.mark.parametrize("around", [b"", b" \t\r "], ids=["bare", "with space"])
@pytest.mark.parametrize("name", ACCEPTED)
def test_a_valid_document_is_stored_byte_for_byte(server: Server, name: str, around: bytes) -> None:
    response = server.post(event(ACCEPTED[name], around))

    assert response.status == 202, response
    assert server.payload(response.json()["id"]) == ACCEPTED[name].strip(b" \t\r\n")


@pytest.mark.parametrize("name", [*REFUSED, *OTHER_SPELLINGS])
def test_an_invalid_document_is_400(server: Server, name: str) -> None:
    assert_problem(server.post(event((REFUSED | OTHER_SPELLINGS)[name])), 400)


def test_a_batch_stores_every_valid_line(server: Server) -> None:
    """Payloads with a line feed are left out: in a batch a line feed ends the line."""
    payloads = [payload for payload in ACCEPTED.values() if b"\n" not in payload]

    response = batch(server, [event(payload, b" ") for payload in payloads])

    assert {line["http_status"] for line in response} == {202}
    kept = [server.payload(line["id"]) for line in response]
    assert kept == [payload.strip(b" \t\r") for payload in payloads]


def test_a_batch_refuses_every_invalid_line(server: Server) -> None:
    bad = [payload for payload in REFUSED.values() if b"\n" not in payload]
    lines = [line for payload in bad for line in (event(payload), posted())]

    response = batch(server, lines)

    assert [line["status"] for line in response[::2]] == [400] * len(bad)
    assert {line["http_status"] for line in response[1::2]} == {202}


@pytest.mark.parametrize("name", OF_THE_BODY)
def test_a_body_has_the_same_status_on_both_routes(server: Server, name: str) -> None:
    template, status = OF_THE_BODY[name]

    alone = server.post(template % new_key().encode())
    (line,) = batch(server, [template % new_key().encode()])

    assert alone.status == status
    assert line.get("http_status", line["status"]) == status


def test_every_deviation_is_listed_with_its_reason() -> None:
    listed = sections(REFERENCE / "http-conformance.md")["JSON (RFC 8259)"]
    _, _, *deviations = rows(listed)
    assert [row[0] for row in deviations] == DEVIATIONS
    assert all(all(row) for row in deviations)


def batch(server: Server, lines: list[bytes]) -> list[dict[str, Any]]:
    data = request("POST", "/webhooks/batch", b"\n".join(lines))
    results: list[dict[str, Any]] = exchange(server.port, data).lines()
    assert len(results) == len(lines)
    return results
