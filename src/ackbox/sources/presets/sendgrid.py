"""SendGrid: arrays of events, signed with a key of which ackbox knows only the public half."""

from base64 import b64encode
from dataclasses import dataclass, field
from datetime import timedelta

from ackbox.errors import SettingError
from ackbox.model import InboundRequest
from ackbox.sources.fields import Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import (
    Scheme,
    Verification,
    check_secrets,
    decode_base64,
    judge_time,
    time_of,
    to_bytes,
    with_headers,
)
from ackbox.sources.schemes.ecdsa import load_private, load_public
from ackbox.sources.schemes.ed25519 import Match, Sign
from ackbox.sources.split import SplitRule

SIGNATURE = "x-twilio-email-event-webhook-signature"
TIME = "x-twilio-email-event-webhook-timestamp"


@dataclass(frozen=True, slots=True)
class SendGridScheme:
    """An ECDSA signature of the time and the body, with nothing between them."""

    keys: tuple[tuple[Match, Sign | None], ...] = field(repr=False)
    tolerance: timedelta

    def verify(self, request: InboundRequest) -> Verification:
        signatures, times = request.headers_named(SIGNATURE), request.headers_named(TIME)
        if not any(signatures):
            return Verification.UNSIGNED
        signature = decode_base64(to_bytes(signatures[0]))
        if len(signatures) > 1 or len(times) != 1 or signature is None:
            return Verification.MALFORMED
        message = to_bytes(times[0]) + request.body
        if not any(match(message, signature) for match, _ in self.keys):
            return Verification.BAD_SIGNATURE
        return judge_time(times[0], request, self.tolerance)

    def sign(self, request: InboundRequest) -> InboundRequest:
        _, sign = self.keys[0]
        if sign is None:
            raise SettingError(
                "only SendGrid can sign with this key: to send a sample, declare a private key of "
                "your own as secret, in base64"
            )
        time = time_of(request)
        signature = b64encode(sign(to_bytes(time) + request.body)).decode()
        return with_headers(request, {SIGNATURE: signature, TIME: time})


def scheme(settings: SchemeSettings) -> Scheme:
    keys = tuple(_read_key(secret) for secret in check_secrets(settings.secrets))
    return SendGridScheme(keys, settings.tolerance)


def _read_key(secret: bytes) -> tuple[Match, Sign | None]:
    der = decode_base64(secret.strip()) or b""
    return load_private(der) or (load_public(der), None)


SENDGRID = Preset(
    name="sendgrid",
    scheme=scheme,
    key=Pointer("/0/sg_event_id"),
    type=Pointer("/0/event"),
    time=Pointer("/0/timestamp"),
    has_time=True,
    split=SplitRule(("",)),
)
