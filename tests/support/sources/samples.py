"""Deliveries that were signed by the senders' own SDKs, or that the senders publish."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from ackbox.model import InboundRequest
from ackbox.sources.preset import SchemeSettings
from ackbox.sources.presets import PRESETS
from ackbox.sources.schemes import Scheme


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One signed delivery. `made_by` names the SDK or the page that signed it.

    `signature` is the header with the signature or token. `time` is the header with the signed time
    alone, if there is one; `timed` tells whether a time is signed, wherever it is. `covers` are the
    further parts that the signature covers:
    `body`, `url`, and names of headers. If a scheme does not sign bytes as they are, `covered`
    returns what it signs. `mutations` are further requests, by name, that must be
    refused: a scheme that signs in the body needs them. `other_secret` is a well-formed secret that
    did not sign the sample. With the secret of most samples, ackbox can sign (`can_sign`); with the
    public half of a key it cannot.
    """

    preset: str
    made_by: str
    settings: SchemeSettings
    request: InboundRequest
    signature: str | None
    time: str | None = None
    covers: tuple[str, ...] = ("body",)
    covered: Callable[[InboundRequest], object] | None = None
    key: str | None = None
    type: str | None = None
    timed: bool = False
    mutations: tuple[tuple[str, InboundRequest], ...] = ()
    other_secret: bytes = b"other:secret"
    can_sign: bool = True

    def __str__(self) -> str:
        return f"{self.preset}, {self.signature or 'body'}, by {self.made_by}"

    @property
    def scheme(self) -> Scheme:
        return PRESETS[self.preset].scheme(self.settings)


def request(
    body: bytes, headers: dict[str, str], at: float, url: str = "/in/sample", method: str = "POST"
) -> InboundRequest:
    """Return a request that arrived at this time, in seconds since 1970."""
    lower = tuple((name.lower(), value) for name, value in headers.items())
    return InboundRequest(method, url, lower, body, datetime.fromtimestamp(at, UTC))


def with_header(sent: InboundRequest, name: str, *values: str) -> InboundRequest:
    """Return the request with these values of a header, in place of the present ones."""
    others = [header for header in sent.headers if header[0] != name]
    return replace(sent, headers=(*others, *((name, value) for value in values)))
