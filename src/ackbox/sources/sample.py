"""Make a delivery as a sender would, so that a source can be tried without its sender."""

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from ackbox.model import InboundRequest
from ackbox.sources.fields import Field, FirstOf, Header, Joined, Pointer


@dataclass
class Sample:
    """A delivery in the making. Without a body of its own it gets a JSON document, in which the
    fields are put where the source looks for them."""

    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    document: dict[str, object] = field(default_factory=dict)

    def put(self, where: Field, text: str) -> None:
        """Put the text of a field where the field is read."""
        match where:
            case Header(name):
                self.headers[name] = text
            case Pointer(path):
                _put(self.document, path.split("/")[1:], text)
            case FirstOf((first, *_)):
                self.put(first, text)
            case Joined(fields, separator):
                parts = text.split(separator, len(fields) - 1)
                for part_field, part in zip(fields, parts, strict=False):
                    self.put(part_field, part)
            case _:  # a hash of the body: nothing to put
                pass

    def request(self, url: str, now: datetime) -> InboundRequest:
        body = msgspec.json.encode(self.document) if self.body is None else self.body
        headers = {"content-type": "application/json", **self.headers}
        return InboundRequest("POST", url, tuple(headers.items()), body, now)


def _put(target: object, names: list[str], text: str) -> None:
    """Put a text at the end of a path; a name of digits is the place of an element in an array."""
    name, *rest = (name.replace("~1", "/").replace("~0", "~") for name in names)
    value: object = text if not rest else [] if rest[0].isdigit() else {}
    if isinstance(target, dict):
        value = target.setdefault(name, value)
    elif isinstance(target, list):
        if not target:
            target.append(value)
        value = target[0]
    if rest:
        _put(value, rest, text)
