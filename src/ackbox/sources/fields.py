"""Find the key, type, lane, sequence and time of an event in a delivery.

A field is read from a header or from the document of the body. All reading is pure, and none of it
raises, whatever the bytes are: a field that cannot be read is absent.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Protocol

import msgspec

from ackbox.errors import InvalidEvent, SettingError
from ackbox.forms import URLENCODED, parse_form
from ackbox.model import InboundRequest, check_name

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_UNREAD = object()
_decode = msgspec.json.Decoder().decode
_FIRST_MILLISECOND = 1e11
"""A larger number is a time in milliseconds: as seconds, it would lie after the year 5000."""


class Delivery:
    """One request, with the document of its body, which is decoded once and only if it is read.

    The Content-Type says only whether a form is multipart: no signature covers this header, so that
    somebody who repeats a delivery could choose another key by it.
    """

    __slots__ = ("_form", "_json", "request")

    def __init__(self, request: InboundRequest) -> None:
        self.request = request
        self._json: object = _UNREAD
        self._form: object = _UNREAD

    @property
    def json(self) -> object:
        """The JSON of the body, or None if the body is not JSON."""
        if self._json is _UNREAD:
            self._json = _read_json(self.request.body)
        return self._json

    @property
    def document(self) -> object:
        """The JSON of the body; for any other body, an object with the fields that it has as a
        form. If the form has a field `payload` that contains a JSON object, that object (GitHub and
        Slack send it)."""
        if (document := self.json) is not None:
            return document
        if self._form is _UNREAD:
            self._form = _read_form(self.request)
        return self._form


class Field(Protocol):
    def read(self, delivery: Delivery) -> str | None:
        """Return the text of the field, or None if the delivery does not contain it."""
        ...


@dataclass(frozen=True, slots=True)
class Header:
    """The value of a header. A header that is empty or repeated is absent."""

    name: str

    def read(self, delivery: Delivery) -> str | None:
        values = delivery.request.headers_named(self.name)
        return (values[0] or None) if len(values) == 1 else None


@dataclass(frozen=True, slots=True)
class Pointer:
    """A text or a whole number in the document, at a JSON Pointer (RFC 6901) such as `/data/id`."""

    path: str

    def read(self, delivery: Delivery) -> str | None:
        value = find(delivery.document, self.path)
        if isinstance(value, str):
            return value or None
        # Longer integers than this are no ids, and Python refuses to print very long ones.
        if type(value) is int and value.bit_length() <= 128:
            return str(value)
        return repr(value) if isinstance(value, float) else None


@dataclass(frozen=True, slots=True)
class BodyHash:
    """The SHA-256 of the body, in hexadecimal digits."""

    def read(self, delivery: Delivery) -> str | None:
        return sha256(delivery.request.body).hexdigest()


BODY_HASH = BodyHash()


@dataclass(frozen=True, slots=True)
class FirstOf:
    """The first of several fields that the delivery contains."""

    fields: tuple[Field, ...]

    def read(self, delivery: Delivery) -> str | None:
        texts = (field.read(delivery) for field in self.fields)
        return next((text for text in texts if text is not None), None)


@dataclass(frozen=True, slots=True)
class Joined:
    """A field and those of the following ones that are there, joined by a separator. Absent if the
    first field is absent."""

    fields: tuple[Field, ...]
    separator: str = "."

    def read(self, delivery: Delivery) -> str | None:
        first, *others = (field.read(delivery) for field in self.fields)
        if first is None:
            return None
        return self.separator.join([first, *(text for text in others if text is not None)])


def parse_field(word: str, text: str) -> Field:
    """Return the field that a source's table names: a JSON Pointer such as `/data/id`, a header
    name, or `sha256` for the SHA-256 of the body. `word` is the key of the table, for the error."""
    if text == "sha256":
        return BODY_HASH
    if text.startswith("/") and not re.search(r"~(?![01])", text):
        return Pointer(text)
    if _HEADER_NAME.fullmatch(text):
        return Header(text.lower())
    raise SettingError(
        f'{word} must be a JSON Pointer such as "/data/id", the name of a header, '
        f'or "sha256" for the SHA-256 of the body, not {text!r}'
    )


def find(document: object, path: str) -> object:
    """Return the value at a JSON Pointer, or None if there is none."""
    for name in _names(path):
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and _INDEX.fullmatch(name) and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


@lru_cache
def _names(path: str) -> tuple[str, ...]:
    """Return the names of a pointer. The same few pointers are read for every delivery."""
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:])


def read_name(field: Field | None, delivery: Delivery) -> str | None:
    """Return the text of a field as a key or a lane. A text that is too long or has control
    characters is replaced by its SHA-256, so that equal texts stay equal and different ones
    different."""
    if field is None or (text := field.read(delivery)) is None:
        return None
    try:
        return check_name("the field", text)
    except InvalidEvent:
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_sequence(field: Field | None, delivery: Delivery) -> int | None:
    if field is None or (text := field.read(delivery)) is None:
        return None
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def read_time(field: Field | None, delivery: Delivery) -> datetime | None:
    """Return a time in UTC from seconds or milliseconds since 1970, or from ISO 8601 with an
    offset."""
    if field is None or (text := field.read(delivery)) is None:
        return None
    try:
        if _NUMBER.fullmatch(text):
            number = float(text)
            return datetime.fromtimestamp(
                number / (1000 if number >= _FIRST_MILLISECOND else 1), UTC
            )
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError, OSError):
        return None


def _read_form(request: InboundRequest) -> dict[str, object]:
    for content_type in (request.header("content-type") or "", URLENCODED):
        with suppress(ValueError):
            form = parse_form(content_type, request.body)
            payload = _read_json(form.get("payload", "").encode())
            return payload if isinstance(payload, dict) else dict(form)
    return {}


def _read_json(body: bytes) -> object:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
