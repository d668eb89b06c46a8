"""Form bodies: `application/x-www-form-urlencoded` and `multipart/form-data` (RFC 7578)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_EXPECTED = f"a form is expected: Content-Type {URLENCODED} or {MULTIPART}"
_NO_PARTS = "the body is not the multipart form that its Content-Type describes"
_MOST_FIELDS = 10_000
_ESCAPED_QUOTES = re.compile(r'\\"|%22')


class FormFile(NamedTuple):
    """A file in a multipart form, with its exact bytes."""

    name: str
    filename: str
    content_type: str
    body: bytes


class Form(Mapping[str, str]):
    """The fields of a form. `form["To"]` is the last value of a field, `form.all("To")` is all of
    its values, and `form.files` are the files of a multipart form."""

    def __init__(self, fields: Iterable[tuple[str, str]], files: Iterable[FormFile] = ()) -> None:
        self.fields = list(fields)
        self.files = list(files)
        self._last = dict(self.fields)

    def all(self, name: str) -> list[str]:
        return [value for field, value in self.fields if field == name]

    def __getitem__(self, name: str) -> str:
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)


def parse_form(content_type: str, body: bytes) -> Form:
    """Return the form; raise `ValueError` if the body is no form. Bytes that are not UTF-8 become
    replacement characters in fields; files keep their exact bytes."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == URLENCODED:
        return Form(_urlencoded(body))
    boundary = _parameter(content_type, "boundary")
    if kind != MULTIPART or not boundary:
        raise ValueError(_EXPECTED)
    return _read_parts(body, boundary.encode("latin-1", "replace"))


def _urlencoded(body: bytes) -> list[tuple[str, str]]:
    text = body.decode("utf-8", "replace")
    try:
        return parse_qsl(
            text, keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise ValueError(f"a form has at most {_MOST_FIELDS} fields") from None


def _read_parts(body: bytes, boundary: bytes) -> Form:
    delimiter = b"\r\n--" + boundary
    preamble, *parts = (b"\r\n" + body).split(delimiter, _MOST_FIELDS + 1)
    if not parts or preamble.strip() or not parts[-1].startswith(b"--"):
        raise ValueError(_NO_PARTS)
    fields: list[tuple[str, str]] = []
    files: list[FormFile] = []
    for part in parts[:-1]:
        item = _read_part(part)
        if isinstance(item, FormFile):
            files.append(item)
        else:
            fields.append(item)
    return Form(fields, files)


def _read_part(part: bytes) -> FormFile | tuple[str, str]:
    head, blank, content = part.partition(b"\r\n\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (
            line.partition(":") for line in head.decode("utf-8", "replace").splitlines()
        )
    }
    disposition = headers.get("content-disposition", "")
    name = _parameter(disposition, "name")
    if not blank or name is None:
        raise ValueError(_NO_PARTS)
    if (filename := _parameter(disposition, "filename")) is None:
        return name, content.decode("utf-8", "replace")
    return FormFile(name, filename, headers.get("content-type", "text/plain"), content)


def _parameter(header: str, name: str) -> str | None:
    """Return a parameter of a header. Browsers write a quote in a name as %22, others as \\"."""
    match = re.search(rf';\s*{name}=(?:"((?:\\"|[^"])*)"|([^\s;]+))', header, re.IGNORECASE)
    if match is None:
        return None
    quoted, token = match.groups()
    return token if quoted is None else _ESCAPED_QUOTES.sub('"', quoted)
