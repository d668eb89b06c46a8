"""Zoom: an HMAC of time and body, and a check of the endpoint every 72 hours."""

import hmac
import re
from dataclasses import replace

import msgspec

from ackbox.model import Handshake, InboundRequest, Refusal, RefusalReason
from ackbox.sources.fields import Delivery, Pointer, find
from ackbox.sources.preset import OK_200, Preset, SchemeSettings
from ackbox.sources.schemes import (
    HmacHeader,
    Scheme,
    Verification,
    check_secrets,
    parse_template,
)

TIME = "x-zm-request-timestamp"
_PLAIN_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{1,256}")
"""Zoom signs `v0:TIME:BODY` with the same secret: without a colon, a token is never that text."""


def scheme(settings: SchemeSettings) -> Scheme:
    return HmacHeader(
        secrets=check_secrets(settings.secrets),
        header="x-zm-signature",
        prefix="v0=",
        signed=parse_template("v0:{timestamp}:{body}", TIME),
        timestamp=TIME,
        tolerance=settings.tolerance,
    )


def answer_url_validation(
    request: InboundRequest, settings: SchemeSettings
) -> Handshake | Refusal | None:
    """Return the HMAC of the token by which Zoom checks the endpoint, made with the secret that
    signed the request.

    The response is an HMAC of a text that the request chose. Two things keep it from signing for
    others: only a request that Zoom signed gets here, and no token has the form of signed bytes.
    """
    document = Delivery(request).document
    if find(document, "/event") != "endpoint.url_validation":
        return None
    token = find(document, "/payload/plainToken")
    if not isinstance(token, str) or not _PLAIN_TOKEN.fullmatch(token):
        return Refusal(400, RefusalReason.UNREADABLE, "The plainToken of the request is malformed.")
    signers = (secret for secret in settings.secrets if _has_signed(secret, request, settings))
    if (secret := next(signers, None)) is None:
        return Refusal(401, RefusalReason.UNSIGNED, "Zoom did not sign this request.")
    encrypted = hmac.digest(secret, token.encode(), "sha256").hex()
    body = msgspec.json.encode({"plainToken": token, "encryptedToken": encrypted})
    return Handshake(body, content_type="application/json")


def _has_signed(secret: bytes, request: InboundRequest, settings: SchemeSettings) -> bool:
    alone = scheme(replace(settings, secrets=(secret,)))
    return alone.verify(request) is Verification.VERIFIED


ZOOM = Preset(
    name="zoom",
    scheme=scheme,
    type=Pointer("/event"),
    time=Pointer("/event_ts"),
    kept_headers=("x-zm-trackingid",),
    has_time=True,
    acknowledgement=OK_200,
    signed_handshake=answer_url_validation,
)
