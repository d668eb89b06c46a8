"""Exactly the valid documents are accepted, and payloads are stored byte for byte (F41)."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.http.posting import new_key
from support.http.strict_json import NotAnEvent, payload_of
from support.servers.server import Server

EXAMPLES = settings(max_examples=300, deadline=None, database=None)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)
white = st.text(" \t\r\n", max_size=3).map(str.encode)
hostile = st.sampled_from(
    [b"\\", b'"', b"\\u", b"\\ud800", b"\\udc00", b"\x00", b"\x1f", b"\x7f", b"\x80", b"\xff", b"{",
     b"}", b"[", b"]", b",", b":", b"0", b"-", b"+", b".", b"e", b"E9", b"NaN", b"Infinity", b"tru",
     b"null", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\xa0", b"\x0c", b"//", b"'", b"payload"]
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Draw documents that are valid except for surrogates and NaN, in many spellings."""
    text = json.dumps(
        draw(anything), ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1))
    )
    value = text.encode(errors="surrogatepass")
    a, b, c, d = (draw(white) for _ in range(4))
    return b'%s{%s"payload":%s%s%s}' % (a, b, c, value, d)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw documents with bytes inserted or removed."""
    body = draw(documents())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        cut = draw(st.integers(0, 2))
        body = body[:at] + draw(hostile | st.binary(max_size=2)) + body[at + cut :]
    return body


@given(body=documents() | damaged() | st.binary(max_size=50))
@example(body=b'{"payload":"\\ud83d\\ude00"}')
@example(body=b'{"payload":[-0.0e-0,1E400]}')
@example(body=b'{"payload":1,"payload":{}}')
@EXAMPLES
def test_exactly_valid_documents_are_accepted_and_stored_byte_for_byte(
    server: Server, body: bytes
) -> None:
    expected = expectation(body)

    response = server.post(body, {"Idempotency-Key": new_key()})

    assert response.status == (400 if expected is None else 202), (expected, response)
    if expected is not None:
        assert server.payload(response.json()["id"]) == expected


@pytest.mark.parametrize("levels", [1, 511, 512, 513, 600, 2000])
def test_the_other_parser_agrees_on_nesting(server: Server, levels: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        payload = opening * levels + b"1" + closing * levels
        body = b'{"payload":%s}' % payload

        status = server.post(body, {"Idempotency-Key": new_key()}).status

        assert (status == 202) == (expectation(body) is not None) == (levels <= 512)


def test_the_other_parser_is_strict() -> None:
    """If this parser were lenient, the comparison would prove nothing."""
    bad: list[Any] = [b"", b"1", b"{}", b'{"payload":NaN}', b'{"payload":"\\ud800"}',
                      b'{"payload":1}x', b'{"payload":1,"x":1}', b'{"payload":"\n"}',
                      b'{"payload":01}', b'{"payload":"\xff"}']  # fmt: skip
    assert [expectation(body) for body in bad] == [None] * len(bad)
    assert expectation(b' {"payload" : [1 , 2]\t} ') == b"[1 , 2]"


def expectation(body: bytes) -> bytes | None:
    try:
        return payload_of(body)
    except NotAnEvent:
        return None
