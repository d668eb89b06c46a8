"""Linear: an HMAC of the body, which contains the time. The id of a delivery is not signed."""

from dataclasses import dataclass
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from ackbox.model import InboundRequest
from ackbox.sources.fields import Delivery, FirstOf, Header, Joined, Pointer, find
from ackbox.sources.preset import OK_200, Preset, SchemeSettings
from ackbox.sources.schemes import (
    HmacHeader,
    Scheme,
    Verification,
    check_secrets,
    parse_template,
)

TIME = "webhookTimestamp"


@dataclass(frozen=True, slots=True)
class LinearScheme:
    """The time is in the signed body, in milliseconds. Its copy in a header is not signed."""

    signed: Scheme
    tolerance: timedelta

    def verify(self, request: InboundRequest) -> Verification:
        verification = self.signed.verify(request)
        if verification is not Verification.VERIFIED:
            return verification
        sent = find(Delivery(request).document, f"/{TIME}")
        if type(sent) is not int:
            return Verification.BAD_TIME
        distance = abs(_milliseconds(request) - sent)
        in_time = distance <= self.tolerance.total_seconds() * 1000
        return Verification.VERIFIED if in_time else Verification.BAD_TIME

    def sign(self, request: InboundRequest) -> InboundRequest:
        document = Delivery(request).document
        fields = document if isinstance(document, dict) else {}
        body = msgspec.json.encode({**fields, TIME: _milliseconds(request)})
        return self.signed.sign(replace(request, body=body))


def _milliseconds(request: InboundRequest) -> int:
    return int(request.received_at.timestamp() * 1000)


def scheme(settings: SchemeSettings) -> Scheme:
    signed = HmacHeader(
        secrets=check_secrets(settings.secrets),
        header="linear-signature",
        signed=parse_template("{body}"),
    )
    return LinearScheme(signed, settings.tolerance)


LINEAR = Preset(
    name="linear",
    scheme=scheme,
    key=Header("linear-delivery"),
    type=Joined((Pointer("/type"), Pointer("/action"))),
    time=FirstOf((Pointer("/createdAt"), Pointer(f"/{TIME}"))),
    kept_headers=("linear-delivery", "linear-event"),
    fingerprint=True,
    has_time=True,
    acknowledgement=OK_200,
)
