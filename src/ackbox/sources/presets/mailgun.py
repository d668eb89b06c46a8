"""Mailgun: an HMAC of a time and a token, in the body. The rest of the body is not signed."""

import hmac
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from ackbox.forms import URLENCODED
from ackbox.model import InboundRequest
from ackbox.sources.fields import Delivery, FirstOf, Pointer, find
from ackbox.sources.preset import OK_200, Preset, SchemeSettings
from ackbox.sources.schemes import (
    Scheme,
    Verification,
    check_secrets,
    is_same,
    judge_time,
    time_of,
    with_headers,
)

_SIGNED = ("timestamp", "token", "signature")


@dataclass(frozen=True, slots=True)
class MailgunScheme:
    """The three fields are an object `signature` of an event, or fields of the form of a route. Of
    a form field that is repeated the last one is Mailgun's: a sender of mail may add the others."""

    secrets: tuple[bytes, ...] = field(repr=False)
    tolerance: timedelta

    def verify(self, request: InboundRequest) -> Verification:
        document = Delivery(request).document
        signed = [_read(document, name) for name in _SIGNED]
        if signed == [None, None, None]:
            return Verification.UNSIGNED
        time, token, signature = signed
        if not time or not token or not signature:
            return Verification.MALFORMED
        expected = (_sign(secret, time, token) for secret in self.secrets)
        if not any(is_same(text, signature) for text in expected):
            return Verification.BAD_SIGNATURE
        return judge_time(time, request, self.tolerance)

    def sign(self, request: InboundRequest) -> InboundRequest:
        document = Delivery(request).document
        fields = document if isinstance(document, dict) else {}
        time = time_of(request)
        token = hmac.digest(b"token", request.body + time.encode(), "sha256").hex()[:50]
        signature = _sign(self.secrets[0], time, token).decode()
        signed = dict(zip(_SIGNED, (time, token, signature), strict=True))
        if not isinstance(find(document, "/event-data"), dict):
            form = urlencode({**fields, **signed}).encode()
            return with_headers(replace(request, body=form), {"content-type": URLENCODED})
        return replace(request, body=msgspec.json.encode({**fields, "signature": signed}))


def _read(document: object, name: str) -> str | None:
    """Return one of the three fields as text; an empty text if it is there and not a text."""
    is_event = isinstance(find(document, "/signature"), dict)
    value = find(document, f"/signature/{name}" if is_event else f"/{name}")
    return value if isinstance(value, str) or value is None else ""


def _sign(secret: bytes, time: str, token: str) -> bytes:
    message = (time + token).encode("utf-8", "backslashreplace")
    return hmac.digest(secret, message, "sha256").hex().encode()


def scheme(settings: SchemeSettings) -> Scheme:
    return MailgunScheme(check_secrets(settings.secrets), settings.tolerance)


MAILGUN = Preset(
    name="mailgun",
    scheme=scheme,
    # The token is the only thing that makes a delivery unique and is signed.
    key=FirstOf((Pointer("/signature/token"), Pointer("/token"))),
    type=Pointer("/event-data/event"),
    time=FirstOf((Pointer("/event-data/timestamp"), Pointer("/timestamp"))),
    has_time=True,
    acknowledgement=OK_200,
)
