"""Meta: WhatsApp, Messenger, Instagram and pages. An HMAC of a body that has several events."""

import re
from dataclasses import dataclass
from hmac import compare_digest

from ackbox.model import Handshake, InboundRequest, Refusal, RefusalReason
from ackbox.sources.fields import Delivery, FirstOf, Joined, Pointer, find
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.query import read_parameter
from ackbox.sources.schemes import HmacHeader, Scheme, check_secrets, parse_template
from ackbox.sources.split import SplitRule

ENTRY = "/entry/0"
CHANGE = f"{ENTRY}/changes/0"
VALUE = f"{CHANGE}/value"
STATUS = f"{VALUE}/statuses/0"
MESSAGING = f"{ENTRY}/messaging/0"
STANDBY = f"{ENTRY}/standby/0"
_CHALLENGE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_WHATSAPP_ITEMS = ("messages", "statuses", "message_echoes")
_NO_EVENT = ("sender", "recipient", "timestamp")


@dataclass(frozen=True, slots=True)
class MessengerKey:
    """The id of a message in Messenger or Instagram. A message that was deleted has the id of the
    original, so that `deleted` is a part of its key."""

    path: str

    def read(self, delivery: Delivery) -> str | None:
        message = find(delivery.document, f"{self.path}/message")
        identity = Pointer(f"{self.path}/message/mid").read(delivery)
        if identity is None or not isinstance(message, dict):
            return None
        return f"{identity}.deleted" if message.get("is_deleted") else identity


@dataclass(frozen=True, slots=True)
class MetaType:
    """The object and the kind of the item, in the words of Meta: `page.message`,
    `whatsapp_business_account.statuses`, `instagram.comments`."""

    def read(self, delivery: Delivery) -> str | None:
        about = Pointer("/object").read(delivery)
        kind = _read_kind(delivery)
        return f"{about}.{kind}" if about and kind else about


def _read_kind(delivery: Delivery) -> str | None:
    for kind in _WHATSAPP_ITEMS:
        if find(delivery.document, f"{VALUE}/{kind}/0") is not None:
            return kind
    for path in (MESSAGING, STANDBY):
        item = find(delivery.document, path)
        if isinstance(item, dict):
            return next((name for name in item if name not in _NO_EVENT), None)
    return Pointer(f"{CHANGE}/field").read(delivery)


def scheme(settings: SchemeSettings) -> Scheme:
    """Return the scheme. The secret is the app secret, not the verify token."""
    return HmacHeader(
        secrets=check_secrets(settings.secrets),
        header="x-hub-signature-256",
        prefix="sha256=",
        signed=parse_template("{body}"),
    )


def answer_challenge(
    request: InboundRequest, settings: SchemeSettings
) -> Handshake | Refusal | None:
    """Return the challenge by which Meta checks the callback URL, if the verify token is right.

    The response repeats a part of the request, and no secret goes into it: it signs nothing.
    """
    if request.method != "GET" or read_parameter(request.url, "hub.mode") != ["subscribe"]:
        return None
    tokens = read_parameter(request.url, "hub.verify_token")
    challenges = read_parameter(request.url, "hub.challenge")
    expected = settings.options.get("verify_token", "").encode()
    is_right = len(tokens) == 1 and compare_digest(_to_bytes(tokens[0]), expected)
    if not expected or not is_right:
        detail = "The verify token is not that of this source (verify_token in its table)."
        return Refusal(403, RefusalReason.UNSIGNED, detail)
    if len(challenges) != 1 or not _CHALLENGE.fullmatch(challenges[0]):
        return Refusal(400, RefusalReason.MALFORMED, "hub.challenge is missing or malformed.")
    return Handshake(challenges[0].encode())


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


META = Preset(
    name="meta",
    scheme=scheme,
    # The id of a status is that of its message: each state of each recipient is an event.
    key=FirstOf(
        (
            Pointer(f"{VALUE}/messages/0/id"),
            Pointer(f"{VALUE}/message_echoes/0/id"),
            Joined(
                (
                    Pointer(f"{STATUS}/id"),
                    Pointer(f"{STATUS}/status"),
                    Pointer(f"{STATUS}/recipient_id"),
                )
            ),
            MessengerKey(MESSAGING),
        )
    ),
    type=MetaType(),
    time=FirstOf(
        (
            *(Pointer(f"{VALUE}/{kind}/0/timestamp") for kind in _WHATSAPP_ITEMS),
            Pointer(f"{MESSAGING}/timestamp"),
            Pointer(f"{ENTRY}/time"),
        )
    ),
    options=("verify_token",),
    secret_options=("verify_token",),
    unsigned_handshake=answer_challenge,
    split=SplitRule(
        (
            *(f"/entry/*/changes/*/value/{kind}" for kind in _WHATSAPP_ITEMS),
            "/entry/*/messaging",
            "/entry/*/standby",
        )
    ),
)
