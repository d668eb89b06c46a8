"""Form bodies: what a sender wrote is what a handler reads, and nothing hostile raises."""

import random
from datetime import UTC, datetime

import pytest
import structlog
from msgspec.structs import replace

from ackbox.forms import Form, FormFile, parse_form
from ackbox.handlers import Event
from ackbox.model import EventId

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="a b"'


def multipart(*parts: bytes) -> bytes:
    return b"".join(b"--a b\r\n" + part + b"\r\n" for part in parts) + b"--a b--\r\n"


def test_a_form_has_the_last_of_repeated_values_and_all_of_them() -> None:
    form = parse_form(f"{URLENCODED}; charset=utf-8", b"From=%2B1&Body=a+b&From=2&Empty=")
    assert dict(form) == {"From": "2", "Body": "a b", "Empty": ""}
    assert form.all("From") == ["+1", "2"]
    assert form.all("none") == []


def test_a_multipart_form_has_fields_and_files() -> None:
    body = multipart(
        b'Content-Disposition: form-data; name="subject"\r\n\r\nline 1\r\nline 2',
        b'content-disposition: form-data; name="file"; filename="a;b.png"\r\n'
        b"Content-Type: image/png\r\n\r\n\x89PNG\r\n--a",
    )
    form = parse_form(MULTIPART, body)
    assert dict(form) == {"subject": "line 1\r\nline 2"}
    assert form.files == [FormFile("file", "a;b.png", "image/png", b"\x89PNG\r\n--a")]


def test_a_name_may_contain_an_escaped_quote() -> None:
    part = b'Content-Disposition: form-data; name="a%22b\\"c"\r\n\r\nx'
    assert dict(parse_form(MULTIPART, multipart(part))) == {'a"b"c': "x"}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{}"),
        ("", b"a=1"),
        ("multipart/form-data", b"--a\r\n"),
        ("multipart/form-data; boundary=a", b"no boundary here"),
        ("multipart/form-data; boundary=a", b"--a\r\nno blank line\r\n--a--"),
        ("multipart/form-data; boundary=a", b"--a\r\nX: 1\r\n\r\nno name\r\n--a--"),
        ("multipart/form-data; boundary=a", b"--a\r\n\r\nnever closed"),
    ],
)
def test_a_body_that_is_no_form_raises_a_value_error(content_type: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"form"):
        parse_form(content_type, body)


def test_any_bytes_are_a_form_or_a_value_error() -> None:
    """A preset reads forms before it can know who sent them."""
    draw = random.Random(13)
    pieces = [
        b"--a b",
        b"\r\n",
        b"--",
        b"name=",
        b'"',
        b";",
        b"\xff",
        b"Content-Disposition:",
        b"=",
    ]
    for _ in range(2000):
        body = b"".join(draw.choices(pieces, k=draw.randrange(12)))
        for content_type in (URLENCODED, MULTIPART):
            try:
                assert isinstance(parse_form(content_type, body), Form)
            except ValueError as error:
                assert "form" in str(error)  # noqa: PT017 - most of the bodies raise nothing


def test_a_handler_reads_a_form_by_its_content_type() -> None:
    event = Event(
        EventId("1"), "twilio", "k", "t", b"To=%2B1", {"content-type": URLENCODED}, 1, 1, None,
        None, None, datetime(2026, 1, 1, tzinfo=UTC), structlog.get_logger(),
    )  # fmt: skip
    assert event.form()["To"] == "+1"
    with pytest.raises(ValueError, match="form"):
        replace(event, headers={}).form()
