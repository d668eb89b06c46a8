"""Recognize a delivery of a known sender that was sent to `/webhooks`, and say what to do."""

from ackbox.documentation import name_page
from ackbox.errors import InvalidEvent
from ackbox.http.requests import Scope
from ackbox.http.routes import Route

PRESETS = {
    b"x-github-event": "github",
    b"x-gitlab-event": "gitlab",
    b"stripe-signature": "stripe",
    b"x-shopify-topic": "shopify",
    b"x-slack-signature": "slack",
    b"x-twilio-signature": "twilio",
    b"x-twilio-email-event-webhook-signature": "sendgrid",
    b"x-telegram-bot-api-secret-token": "telegram",
    b"paddle-signature": "paddle",
    b"linear-signature": "linear",
    b"x-zm-signature": "zoom",
    b"svix-signature": "svix",
    b"webhook-signature": "standard-webhooks",
    b"x-hub-signature-256": "meta",
}
"""Headers by which a sender can be recognized, and the name of its preset. GitHub has the last one
too, so that the order matters."""
_OUR_FIELDS = (b'"payload"', b'"idempotency_key"')
_UNKNOWN_FIELD = "unknown field"


def name_sender(error: InvalidEvent, scope: Scope, body: bytes) -> InvalidEvent:
    """Return the error with what to do if the request is one of a real sender. The text repeats
    nothing of the request that the error does not repeat already."""
    sent = {name for name, _ in scope["headers"]}
    preset = next((preset for name, preset in PRESETS.items() if name in sent), None)
    if preset is not None:
        table = f'[sources.{preset}] with preset = "{preset}"'
        path = Route.DELIVER.url("", source=preset)
        return InvalidEvent(
            f"this is a delivery of {preset}, not an event of ours: declare {table} and its secret "
            f"in ackbox.toml, and let {preset} send to {path}; see {name_page('how-to/sources')}"
        )
    if _UNKNOWN_FIELD not in str(error) or any(name in body for name in _OUR_FIELDS):
        return error
    return InvalidEvent(
        f"{error}; if a sender such as GitHub or Stripe made this request, declare a source for "
        f"it, and let it send to that source: see {name_page('how-to/sources')}"
    )
