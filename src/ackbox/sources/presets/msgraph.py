"""Microsoft Graph: change notifications, each with the `clientState` of its subscription."""

import re
from dataclasses import dataclass, field
from hmac import compare_digest

import msgspec
from msgspec.structs import replace

from ackbox.model import Handshake, InboundRequest, Refusal, RefusalReason
from ackbox.sources.fields import BODY_HASH, Delivery, FirstOf, Joined, Pointer, find
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.query import read_parameter
from ackbox.sources.schemes import Scheme, Verification, check_secrets
from ackbox.sources.split import SplitRule

STATE = "clientState"
_VALIDATION_TOKEN = re.compile(r"[\x20-\x7e]{1,2048}")


@dataclass(frozen=True, slots=True)
class ClientState:
    """Each item contains the secret that was given to its subscription. A delivery is accepted if
    one of its items has a right one; each item is then verified alone."""

    secrets: tuple[bytes, ...] = field(repr=False)

    def verify(self, request: InboundRequest) -> Verification:
        states = [find(item, f"/{STATE}") for item in _items(request)]
        given = [state for state in states if state]
        if not given:
            return Verification.UNSIGNED
        matches = [self._matches(state) for state in given]
        return Verification.VERIFIED if any(matches) else Verification.BAD_SIGNATURE

    def sign(self, request: InboundRequest) -> InboundRequest:
        document = Delivery(request).document
        fields = document if isinstance(document, dict) else {}
        state = self.secrets[0].decode("utf-8", "replace")
        items = [{**item, STATE: state} for item in _items(request)] or [{STATE: state}]
        return replace(request, body=msgspec.json.encode({**fields, "value": items}))

    def _matches(self, state: object) -> bool:
        text = state.encode("utf-8", "backslashreplace") if isinstance(state, str) else b""
        return any(compare_digest(text, secret) for secret in self.secrets)


def _items(request: InboundRequest) -> list[dict[str, object]]:
    value = find(Delivery(request).document, "/value")
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class ArrivalMinute:
    """The minute in which the request arrived."""

    def read(self, delivery: Delivery) -> str | None:
        return delivery.request.received_at.strftime("%Y-%m-%dT%H:%M")


def scheme(settings: SchemeSettings) -> Scheme:
    return ClientState(check_secrets(settings.secrets))


def answer_validation(request: InboundRequest, _: SchemeSettings) -> Handshake | Refusal | None:
    """Return the token by which Graph checks a notification URL.

    Graph does not sign this request, so that anybody gets the response. It repeats a part of the
    request as plain text, and no secret goes into it: it signs nothing and records nothing.
    """
    tokens = read_parameter(request.url, "validationToken")
    if request.method != "POST" or not tokens:
        return None
    if len(tokens) != 1 or not _VALIDATION_TOKEN.fullmatch(tokens[0]):
        return Refusal(400, RefusalReason.MALFORMED, "validationToken is malformed or sent twice.")
    return Handshake(tokens[0].encode())


MSGRAPH = Preset(
    name="msgraph",
    scheme=scheme,
    # Without an id, two notifications of the same change look the same, and so do a notification
    # and its repetition. The minute keeps a later one from being taken for a duplicate.
    key=FirstOf((Pointer("/value/0/id"), Joined((BODY_HASH, ArrivalMinute())))),
    type=FirstOf((Pointer("/value/0/changeType"), Pointer("/value/0/lifecycleEvent"))),
    unsigned_handshake=answer_validation,
    split=SplitRule(("/value",)),
    verifies_items=True,
)
