"""Slack: events, slash commands and interactivity, with an HMAC of time and body."""

from ackbox.model import Handshake, InboundRequest
from ackbox.sources.fields import Delivery, FirstOf, Pointer, find
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import HmacHeader, Scheme, check_secrets, parse_template

TIME = "x-slack-request-timestamp"


def scheme(settings: SchemeSettings) -> Scheme:
    return HmacHeader(
        secrets=check_secrets(settings.secrets),
        header="x-slack-signature",
        prefix="v0=",
        signed=parse_template("v0:{timestamp}:{body}", TIME),
        timestamp=TIME,
        tolerance=settings.tolerance,
    )


def answer_url_verification(request: InboundRequest, _: SchemeSettings) -> Handshake | None:
    """Return the challenge by which Slack checks a request URL. Slack signs this request too."""
    if b"url_verification" not in request.body:
        return None  # most requests are events: do not decode them twice
    document = Delivery(request).document
    challenge = find(document, "/challenge")
    if find(document, "/type") != "url_verification" or not isinstance(challenge, str):
        return None
    return Handshake(challenge.encode())


SLACK = Preset(
    name="slack",
    scheme=scheme,
    # An event has an id. A slash command and a click have the id of their trigger instead.
    key=FirstOf((Pointer("/event_id"), Pointer("/trigger_id"))),
    type=FirstOf((Pointer("/event/type"), Pointer("/type"), Pointer("/command"))),
    time=FirstOf((Pointer("/event_time"), Pointer("/action_ts"))),
    kept_headers=("x-slack-retry-num", "x-slack-retry-reason"),
    has_time=True,
    signed_handshake=answer_url_verification,
)
