"""A second parser of what `POST /webhooks` must accept: the standard library's, made strict."""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

_WHITE_SPACE = " \t\n\r"


class NotAnEvent(Exception):
    """The body is not an event."""


def payload_of(body: bytes, *, nesting: int = 512) -> bytes:
    """Return the exact bytes of the payload in `{"payload": ...}`, or raise `NotAnEvent`."""
    try:
        return _Document(body.decode()).payload(nesting)
    except (ValueError, IndexError, RecursionError) as error:
        raise NotAnEvent(repr(error)) from None


class _Document:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decoder = json.JSONDecoder(
            parse_constant=_refuse, parse_int=str, parse_float=str, object_pairs_hook=list
        )

    def payload(self, nesting: int) -> bytes:
        fields = dict(self._fields())
        value, start, end = fields.pop("payload", (None, None, None))
        if start is None or fields:
            raise ValueError(f"not a payload alone: {fields}")
        _check(value, nesting)
        return self._text[start:end].encode()

    def _fields(self) -> Iterator[tuple[str, tuple[Any, int, int]]]:
        mark = self._next("{")
        if self._peek() == "}":
            mark = self._next("}")
        while mark != "}":
            if self._peek() != '"':
                raise ValueError("a field has no name")
            name, self._at = self._decoder.raw_decode(self._text, self._at)
            name.encode()
            self._next(":")
            self._skip()
            start = self._at
            value, self._at = self._decoder.raw_decode(self._text, start)
            yield name, (value, start, self._at)
            mark = self._next(",}")
        self._skip()
        if self._at != len(self._text):
            raise ValueError("more than one value")

    def _next(self, allowed: str) -> str:
        mark = self._peek()
        if mark not in allowed:
            raise ValueError(f"{mark!r} is none of {allowed!r}")
        self._at += 1
        return mark

    def _peek(self) -> str:
        self._skip()
        return self._text[self._at]

    def _skip(self) -> None:
        while self._text[self._at : self._at + 1] in [*_WHITE_SPACE]:
            self._at += 1


def _check(value: Any, levels: int) -> None:
    """Raise if the value has a lone surrogate or is nested too deep. An object is a list of
    pairs here."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list):
        if levels == 0:
            raise ValueError("too deep")
        for item in value:
            for part in item if isinstance(item, tuple) else (item,):
                _check(part, levels - 1)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
