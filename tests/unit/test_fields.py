"""Where the fields of an event are found in a delivery of a real sender (F46: nothing raises)."""

from datetime import UTC, datetime
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackbox.errors import SettingError
from ackbox.model import InboundRequest
from ackbox.sources.fields import (
    BODY_HASH,
    Delivery,
    FirstOf,
    Header,
    Joined,
    Pointer,
    parse_field,
    read_name,
    read_sequence,
    read_time,
)

FORM = "application/x-www-form-urlencoded"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def delivery(body: bytes = b"", **headers: str) -> Delivery:
    names = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Delivery(InboundRequest("POST", "/in/shop", names, body, NOON))


@pytest.mark.parametrize(
    ("body", "path", "text"),
    [
        (b'{"id": "evt_1"}', "/id", "evt_1"),
        (b'{"data": {"ids": [7, 8]}}', "/data/ids/1", "8"),
        (b'{"a/b": {"c~d": "deep"}}', "/a~1b/c~0d", "deep"),
        (b'{"id": ""}', "/id", None),
        (b'{"id": true}', "/id", None),
        (b'{"id": {"a": 1}}', "/id", None),
        (b'{"ids": [1]}', "/ids/01", None),
        (b'{"ids": [1]}', "/ids/9", None),
        (b'{"id": 1', "/id", None),
        (b"[" * 100_000, "/id", None),
        (b'{"id": ' + b"9" * 5000 + b"}", "/id", None),
        (b'{"id": "\xff"}', "/id", None),
        (b'"text"', "/id", None),
    ],
)
def test_a_pointer_finds_texts_and_whole_numbers(body: bytes, path: str, text: str | None) -> None:
    assert Pointer(path).read(delivery(body)) == text


def test_a_form_is_a_document_of_its_fields() -> None:
    form = delivery(
        b"From=%2B1&Body=a+b&From=2",
        content_type="application/x-www-form-urlencoded; charset=utf-8",
    )
    assert Pointer("/From").read(form) == "2"
    assert Pointer("/Body").read(form) == "a b"


def test_a_form_with_json_in_its_payload_is_read_as_that_json() -> None:
    form = delivery(b"payload=%7B%22action%22%3A%22opened%22%7D", content_type=FORM)
    assert Pointer("/action").read(form) == "opened"


def test_a_form_with_too_many_fields_has_none() -> None:
    assert Pointer("/a").read(delivery(b"a=1&" * 20_000, content_type=FORM)) is None


def test_a_repeated_or_empty_header_is_absent() -> None:
    twice = InboundRequest("POST", "/", (("x-id", "1"), ("x-id", "2")), b"", NOON)
    assert Header("x-id").read(delivery(x_id="1")) == "1"
    assert Header("x-id").read(delivery(x_id="")) is None
    assert Header("x-id").read(Delivery(twice)) is None


def test_fields_can_be_alternatives_or_joined() -> None:
    event = delivery(b'{"action": "opened"}', x_event="issues")
    assert Joined((Header("x-event"), Pointer("/action"))).read(event) == "issues.opened"
    assert Joined((Header("x-event"), Pointer("/none"))).read(event) == "issues"
    assert Joined((Header("x-none"), Pointer("/action"))).read(event) is None
    assert FirstOf((Header("x-none"), Pointer("/action"))).read(event) == "opened"
    assert FirstOf((Header("x-none"),)).read(event) is None


def test_a_key_that_the_ledger_cannot_hold_becomes_its_hash() -> None:
    long = delivery(x_id="i" * 300)
    assert read_name(Header("x-id"), long) == sha256(b"i" * 300).hexdigest()
    control = delivery(b'{"id": "a\\u0000b"}')
    assert read_name(Pointer("/id"), control) == sha256(b"a\0b").hexdigest()
    assert read_name(BODY_HASH, delivery(b"any bytes")) == sha256(b"any bytes").hexdigest()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1769860800", NOON),
        ("1769860800000", NOON),
        ("1769860800.0", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T12:00:00", None),
        ("0001-01-01T00:00:00+12:00", None),
        ("999999999999999", None),
        ("nan", None),
        ("1_0", None),
        ("-1", None),
        ("\u0661", None),
        ("yesterday", None),
    ],
)
def test_times_are_seconds_milliseconds_or_iso_8601(text: str, moment: datetime | None) -> None:
    assert read_time(Header("x-time"), delivery(x_time=text)) == moment


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("-3", -3), ("1_0", None), ("9" * 19, None), ("1.5", None)]
)
def test_a_sequence_is_a_whole_number(text: str, number: int | None) -> None:
    assert read_sequence(Header("x-number"), delivery(x_number=text)) == number


def test_a_table_names_a_header_a_pointer_or_the_hash() -> None:
    assert parse_field("key", "X-Shop-Id") == Header("x-shop-id")
    assert parse_field("key", "/data/id") == Pointer("/data/id")
    assert parse_field("key", "sha256") == BODY_HASH


@pytest.mark.parametrize("text", ["", "a b", "/a~2", "x:y"])
def test_any_other_name_is_refused_with_the_allowed_ones(text: str) -> None:
    with pytest.raises(SettingError, match="key must be a JSON Pointer"):
        parse_field("key", text)


@given(st.binary(max_size=200), st.text(max_size=50))
def test_reading_never_raises(body: bytes, path: str) -> None:  # F46
    for content_type in ("application/json", FORM):
        hostile = delivery(body, content_type=content_type)
        for field in (Pointer(path), Pointer("/payload"), Header(path)):
            assert isinstance(read_name(field, hostile), str | None)
            assert isinstance(read_time(field, hostile), datetime | None)
            assert isinstance(read_sequence(field, hostile), int | None)
